//! What the owner of the tables does before servers start.
use event_log::migrate::MigrateError;
use projections::RebuildError;
use sqlx::PgPool;

/// A rebuilt view is a new table; without this the server could not read it.
const PRIVILEGES: &str = "alter default privileges in schema stead \
                          grant select, insert, update, delete on tables to stead_app";

/// Why the tables are not as the server needs them.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A migration did not run.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    /// A view could not be made again.
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
    /// The database does not answer or refused.
    #[error("the database refused: {0}")]
    Database(#[from] sqlx::Error),
}

/// Bring tables, privileges and views up to date. As often as one likes. Gives the migrations that ran.
///
/// # Errors
/// [`PrepareError`].
pub async fn prepare(owner: &PgPool) -> Result<Vec<String>, PrepareError> {
    let ran = event_log::migrate(owner).await?;
    let role = "select exists (select from pg_roles where rolname = 'stead_app')";
    if sqlx::query_scalar::<_, bool>(role).fetch_one(owner).await? {
        sqlx::query(PRIVILEGES).execute(owner).await?;
    }
    projections::projector::ready(owner).await?;
    Ok(ran)
}
