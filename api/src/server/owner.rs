//! What the owner of the tables does before servers start.
use event_log::{Source, migrate::MigrateError};
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
    /// The database does not answer or refused.
    #[error("the database refused: {0}")]
    Database(#[from] sqlx::Error),
    /// Runners have seen that epoch already, or a later one.
    #[error("the epoch is {now}: raise it to a higher one than any runner has seen")]
    Epoch { now: i64 },
}

/// Say that the log was restored or moved: runners accept an earlier position only in a higher epoch,
/// each when its customer says so. What is on its way into the log is sent again.
///
/// # Errors
/// [`PrepareError`].
pub async fn raise_epoch(owner: &PgPool, to: u32) -> Result<(), PrepareError> {
    let raise = "update log_head set epoch = $1, fence = fence + 1 where epoch < $1";
    let done = sqlx::query(raise).bind(i64::from(to)).execute(owner).await?;
    if done.rows_affected() == 1 {
        return Ok(());
    }
    let now = sqlx::query_scalar("select epoch from log_head").fetch_one(owner).await?;
    Err(PrepareError::Epoch { now })
}

/// Bring tables, their privileges and views up to date. As often as one likes. Gives the migrations that ran. Without the
/// server's keys and its archives a view of what is sealed, or in them only, cannot be made again.
///
/// # Errors
/// [`PrepareError`].
pub async fn prepare(owner: impl Into<Source>) -> Result<Vec<String>, PrepareError> {
    let owner = owner.into();
    let ran = event_log::migrate(&owner.pool).await?;
    projections::projector::ready(owner).await?;
    Ok(ran)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::testing::Started;

    #[tokio::test]
    async fn an_epoch_is_raised_beneath_a_running_server_and_never_lowered() {
        let started = Started::new().await;
        let app = started.app();
        raise_epoch(&app.pool, 7).await.unwrap();
        for wrong in [7, 3] {
            let refused = raise_epoch(&app.pool, wrong).await.unwrap_err();
            assert!(matches!(refused, PrepareError::Epoch { now: 7 }), "{refused}");
        }
        // The next append meets the new epoch, and is written.
        started.held(domain::job::JobKind::Build, serde_json::json!({}), vec![]).await;
        assert_eq!(app.log().epoch(), 7);
    }
}
