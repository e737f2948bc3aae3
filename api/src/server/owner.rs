//! Preparation of the database by the owner of the tables, before servers start.
use event_log::{Source, migrate::MigrateError};
use projections::RebuildError;
use sqlx::PgPool;

/// Reasons why the tables cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
    #[error("cannot access the database: {0}")]
    Database(#[from] sqlx::Error),
    #[error(
        "cannot raise the epoch: it is already {now}; pass an epoch above the highest epoch that any runner has seen"
    )]
    Epoch { now: i64 },
}

/// Raises the epoch after the log was restored or moved. Runners accept an earlier position only
/// in a higher epoch, and only with their customer's approval. Raising the fencing counter makes
/// concurrent appends retry.
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

/// Updates tables, privileges and projections. Idempotent. Returns the migrations that ran. The
/// source must include the server's keys and archives if a projection needs encrypted or archived
/// events.
///
/// # Errors
/// [`PrepareError`].
pub async fn prepare(owner: impl Into<Source>) -> Result<Vec<String>, PrepareError> {
    let owner = owner.into();
    let ran = event_log::migrate(&owner.pool).await?;
    projections::projector::prepare(owner).await?;
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
        // The next append detects the new epoch and succeeds.
        started.held(domain::job::JobKind::Build, serde_json::json!({}), vec![]).await;
        assert_eq!(app.log().epoch(), 7);
    }
}
