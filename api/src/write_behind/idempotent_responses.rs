//! Stores the responses to commands that have an idempotency key, in batches. A repeated command
//! waits briefly for the response to the first command. If a server crash lost that response, the
//! result is read from the log.
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{WriteBehind, WriteBehindQueue};

pub type ResponseQueue = WriteBehind<StoredResponse>;

/// Response to a command, without its secrets.
pub struct StoredResponse {
    /// Principal that owns the key.
    pub principal: String,
    pub key: String,
    pub body: String,
}

/// Queues a response, or stores it immediately if the queue is full.
pub async fn keep(queue: &ResponseQueue, pool: &PgPool, answer: StoredResponse) {
    if let Err(answer) = queue.leave(answer) {
        write(pool, &[answer]).await;
    }
}

/// Stores queued responses until the server stops, and then those that remain.
pub async fn run(
    pool: PgPool,
    stopping: CancellationToken,
    left: WriteBehindQueue<StoredResponse>,
) {
    while let Some(some) = left.next(&stopping).await {
        write(&pool, &some).await;
    }
}

/// Stores responses. A response to a command before a shredding may contain erased data, so it is
/// not stored.
async fn write(pool: &PgPool, some: &[StoredResponse]) {
    let column = |of: fn(&StoredResponse) -> &str| some.iter().map(of).collect::<Vec<_>>();
    let kept = sqlx::query(
        "with asynchronous as (select set_config('synchronous_commit', 'off', true)) \
         update log_command c set response = u.said::json \
         from asynchronous, unnest($1::text[], $2::text[], $3::text[]) as u(principal, key, said) \
         where c.principal = u.principal and c.idempotency_key = u.key and c.response is null \
           and c.last_position > (select coalesce(max(fence), 0) from subject_key)",
    )
    .bind(column(|answer| &answer.principal))
    .bind(column(|answer| &answer.key))
    .bind(column(|answer| &answer.body))
    .execute(pool)
    .await;
    if let Err(reason) = kept {
        warn!(count = some.len(), error = %reason, "Cannot store responses; repeated commands get their responses from the log");
    }
}
