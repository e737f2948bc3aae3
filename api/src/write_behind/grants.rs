//! Stores issued grants in batches. The server can reproduce a grant byte for byte when its claim
//! is repeated or the grant is requested. So a claim does not wait for the disk.
use event_log::blob;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{WriteBehind, WriteBehindQueue};

pub type GrantQueue = WriteBehind<Vec<u8>>;

/// Queues a grant, or stores it immediately if the queue is full.
pub async fn keep(
    evidence: &GrantQueue,
    pool: &PgPool,
    bytes: Vec<u8>,
) -> Result<(), blob::BlobError> {
    match evidence.leave(bytes) {
        Ok(()) => Ok(()),
        Err(bytes) => blob::put_unflushed(pool, &[bytes]).await,
    }
}

/// Stores queued grants until the server stops, and then those that remain.
pub async fn run(pool: PgPool, stopping: CancellationToken, left: WriteBehindQueue<Vec<u8>>) {
    while let Some(some) = left.next(&stopping).await {
        if let Err(reason) = blob::put_unflushed(&pool, &some).await {
            warn!(count = some.len(), error = %reason, "Cannot store grants; each is reproduced when it is needed");
        }
    }
}
