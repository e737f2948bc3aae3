//! Dead letters: events whose reactions failed repeatedly. The server stores, counts and retries
//! them.
//!
//! A reaction evaluates the state at the time it runs, so a late retry does only what is still
//! required.
use sqlx::{PgPool, Row as _};

use super::{
    commit,
    failure_class::{FailureClass, classify},
    policies::{CONSUMER, PolicyConsumer},
};
use crate::{problem::Problem, state::App};

/// Maximum number of dead letters that one pass retries.
const RETRY_LIMIT: i64 = 100;

/// Progress of the policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Position up to which every event was processed or stored as a dead letter.
    pub position: u64,
    /// Number of dead letters.
    pub dead_letters: u64,
}

/// Reads the progress of the policies, regardless of the server that runs them.
pub(crate) async fn progress(pool: &PgPool) -> Result<Progress, sqlx::Error> {
    let row = sqlx::query(
        "select coalesce((select position from log_consumer \
           where name = $1 and version = $2 and shard = $3), 0), \
         (select count(*) from log_dead_letter)",
    )
    .bind(CONSUMER.0)
    .bind(CONSUMER.1)
    .bind(CONSUMER.2)
    .fetch_one(pool)
    .await?;
    let number = |at| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
    Ok(Progress { position: number(0)?, dead_letters: number(1)? })
}

/// Stores an event as a dead letter so that the policies can continue.
pub(crate) async fn store(app: &App, position: u64, problem: &Problem) -> Result<(), Problem> {
    let detail = &problem.detail;
    tracing::error!(position, error = %detail, "Cannot process an event; the server stores it as a dead letter and retries it");
    sqlx::query(
        "insert into log_dead_letter (position, reason, attempts, created_at) values ($1, $2, 1, $3) \
         on conflict (position) do update set reason = excluded.reason, attempts = log_dead_letter.attempts + 1",
    )
    .bind(position.cast_signed())
    .bind(detail)
    .bind(app.now())
    .execute(&app.pool)
    .await?;
    Ok(())
}

/// Retries up to [`RETRY_LIMIT`] dead letters once, those with the fewest attempts first.
pub(crate) async fn retry_all(app: &App, place: &PolicyConsumer) -> Result<(), Problem> {
    let rows =
        sqlx::query("select position from log_dead_letter order by attempts, position limit $1")
            .bind(RETRY_LIMIT)
            .fetch_all(&app.pool)
            .await?;
    for row in rows {
        let position = row.try_get::<i64, _>(0)?.unsigned_abs();
        // An event whose archive is missing stays a dead letter, and the next one is tried.
        let done = match app.engine.log().event(position).await {
            Ok(None) => continue,
            Ok(Some(event)) => commit::react_to(app, place, &event).await,
            Err(error) => Err(error.into()),
        };
        match done {
            Ok(()) => {
                let done = sqlx::query("delete from log_dead_letter where position = $1");
                done.bind(position.cast_signed()).execute(&app.pool).await?;
                tracing::info!(position, "Processed a dead letter");
            }
            Err(problem) if classify(problem.code) == FailureClass::Transient => {
                return Err(problem);
            }
            Err(problem) => store(app, position, &problem).await?,
        }
    }
    Ok(())
}
