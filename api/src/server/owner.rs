//! What the owner of the tables does before servers start.
use event_log::migrate::MigrateError;
use projections::RebuildError;
use sqlx::PgPool;

/// Why the tables are not as the server needs them.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A migration did not run.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    /// A view could not be made again.
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
}

/// Bring tables, their privileges and views up to date. As often as one likes. Gives the migrations that ran.
///
/// # Errors
/// [`PrepareError`].
pub async fn prepare(owner: &PgPool) -> Result<Vec<String>, PrepareError> {
    let ran = event_log::migrate(owner).await?;
    projections::projector::ready(owner).await?;
    Ok(ran)
}
