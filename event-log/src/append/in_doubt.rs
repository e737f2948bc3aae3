//! What to do when nobody knows whether a batch was written.
use std::time::Duration;

use sqlx::{PgConnection, Row};
use tokio::time::sleep;
use tracing::warn;
use ulid::Ulid;
use uuid::Uuid;

use super::{Appender, Batch, head};
use crate::stored::bigint;

/// The longest pause between two tries to reach the database.
const PAUSE: Duration = Duration::from_millis(500);

impl Appender {
    /// Find out, however long it takes: until then nothing is answered, numbered or sent.
    pub(super) async fn resolve_in_doubt(&mut self, batch: &Batch) -> bool {
        let mut pause = Duration::from_millis(5);
        loop {
            match head::within(self.answer, self.ask(batch)).await {
                Ok(written) => return written,
                Err(error) => {
                    warn!("Still in doubt about a batch, asking again: {error}");
                    self.connection = None;
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE);
                }
            }
        }
    }

    async fn ask(&mut self, batch: &Batch) -> Result<bool, sqlx::Error> {
        let mut connection = head::connect(&self.options, self.answer).await?;
        // This waits for the doubtful statement if it still runs: it has either committed when this returns or
        // can no longer hold its compare-and-set.
        head::bump_fence(&mut connection).await?;
        let written = was_written(&mut connection, batch).await?;
        self.connection = Some(connection);
        Ok(written)
    }
}

/// All of a batch or nothing of it is there, so one trace is enough.
async fn was_written(connection: &mut PgConnection, batch: &Batch) -> Result<bool, sqlx::Error> {
    if let Some(event) = batch.events.first() {
        let row = sqlx::query("select event_id from log_event where position = $1")
            .bind(bigint(event.position))
            .fetch_optional(connection)
            .await?;
        let found = row.map(|row| row.try_get::<Uuid, _>(0)).transpose()?;
        return Ok(found.is_some_and(|found| Ulid::from_bytes(*found.as_bytes()) == event.event_id));
    }
    // The same request under the same key without events: whoever wrote it, the answer is the same.
    if let (Some(principal), Some(key)) = (batch.keys.principal.first(), batch.keys.key.first()) {
        let row = sqlx::query(
            "select 1 from log_command where principal = $1 and idempotency_key = $2 \
             and request_hash = $3 and expires_at = $4",
        )
        .bind(principal)
        .bind(key)
        .bind(&batch.keys.request_hash[0])
        .bind(batch.keys_expire_at)
        .fetch_optional(connection)
        .await?;
        return Ok(row.is_some());
    }
    Ok(false)
}
