//! In-doubt commits: the connection failed after a batch was sent, so the batch may have been
//! committed.
use std::time::Duration;

use sqlx::{PgConnection, Row};
use tokio::time::sleep;
use tracing::warn;
use ulid::Ulid;
use uuid::Uuid;

use super::{Appender, Batch, head};
use crate::stored::bigint;

/// First back-off between attempts to reach the database; each attempt doubles it up to
/// [`MAX_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_millis(5);
const MAX_BACKOFF: Duration = Duration::from_millis(500);

impl Appender {
    /// Determines whether a batch was committed. Retries without limit, because until then the
    /// appender cannot acknowledge, number or send a commit.
    pub(super) async fn resolve_in_doubt(&mut self, batch: &Batch) -> bool {
        let mut backoff = FIRST_BACKOFF;
        loop {
            match head::with_timeout(self.response_timeout, self.query_in_doubt(batch)).await {
                Ok(committed) => return committed,
                Err(error) => {
                    warn!(error = %error, "Cannot determine whether a batch was committed, retrying");
                    self.connection = None;
                    sleep(backoff).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
            }
        }
    }

    async fn query_in_doubt(&mut self, batch: &Batch) -> Result<bool, sqlx::Error> {
        let mut connection = head::connect(&self.options, self.response_timeout).await?;
        // The update waits for the in-doubt statement if it still runs. When it returns, that
        // statement has either committed or its compare-and-set can no longer apply.
        head::bump_fence(&mut connection).await?;
        let committed = is_committed(&mut connection, batch).await?;
        self.connection = Some(connection);
        Ok(committed)
    }
}

/// Returns true if a batch is in the log. A batch is written completely or not at all, so one row
/// decides.
async fn is_committed(connection: &mut PgConnection, batch: &Batch) -> Result<bool, sqlx::Error> {
    if let Some(event) = batch.events.first() {
        let row = sqlx::query("select event_id from log_event where position = $1")
            .bind(bigint(event.position))
            .fetch_optional(connection)
            .await?;
        let found = row.map(|row| row.try_get::<Uuid, _>(0)).transpose()?;
        return Ok(found.is_some_and(|found| Ulid::from_bytes(*found.as_bytes()) == event.event_id));
    }
    // Another server may have stored the same key for the same request. For a commit without
    // events, the response is then the same.
    let Some(key) = batch.keys.first() else { return Ok(false) };
    let row = sqlx::query(
        "select 1 from log_command where principal = $1 and idempotency_key = $2 \
         and request_hash = $3 and expires_at = $4",
    )
    .bind(&key.principal)
    .bind(&key.key)
    .bind(&key.request_hash[..])
    .bind(batch.keys_expire_at)
    .fetch_optional(connection)
    .await?;
    Ok(row.is_some())
}
