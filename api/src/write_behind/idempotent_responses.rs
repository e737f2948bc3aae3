//! Stores the responses to commands that have an idempotency key, in batches. A repeated command
//! waits briefly for the response to the first command. If a server crash lost that response, the
//! result is read from the log.
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{WriteBehind, WriteBehindQueue};

pub(crate) type ResponseQueue = WriteBehind<StoredResponse>;

/// Response to a command, without its secrets.
pub struct StoredResponse {
    /// Principal that owns the key.
    pub principal: String,
    pub key: String,
    pub body: String,
}

/// Queues a response, or stores it immediately if the queue is full.
pub(crate) async fn store(queue: &ResponseQueue, pool: &PgPool, response: StoredResponse) {
    if let Err(response) = queue.push(response) {
        write(pool, &[response]).await;
    }
}

/// Stores queued responses until the server stops, and then the remaining responses.
pub(crate) async fn run(
    pool: PgPool,
    stopping: CancellationToken,
    queue: WriteBehindQueue<StoredResponse>,
) {
    while let Some(batch) = queue.next_batch(&stopping).await {
        write(&pool, &batch).await;
    }
}

/// Stores responses. A response to a command before a shredding may contain erased data, so it is
/// not stored.
async fn write(pool: &PgPool, batch: &[StoredResponse]) {
    let column = |of: fn(&StoredResponse) -> &str| batch.iter().map(of).collect::<Vec<_>>();
    let stored = sqlx::query(
        "with asynchronous as (select set_config('synchronous_commit', 'off', true)) \
         update log_command c set response = u.response::json \
         from asynchronous, unnest($1::text[], $2::text[], $3::text[]) as u(principal, key, response) \
         where c.principal = u.principal and c.idempotency_key = u.key and c.response is null \
           and c.last_position > (select coalesce(max(fence), 0) from subject_key)",
    )
    .bind(column(|response| &response.principal))
    .bind(column(|response| &response.key))
    .bind(column(|response| &response.body))
    .execute(pool)
    .await;
    if let Err(reason) = stored {
        warn!(count = batch.len(), error = %reason, "Cannot store responses; repeated commands get their responses from the log");
    }
}
