//! Stores issued grants in batches. The server can reproduce a grant byte for byte when its claim
//! is repeated or the grant is requested. A claim therefore does not wait for the disk.
use event_log::blob;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{WriteBehind, WriteBehindQueue};

pub(crate) type GrantQueue = WriteBehind<Vec<u8>>;

/// Queues a grant, or stores it immediately if the queue is full.
pub(crate) async fn store(
    evidence: &GrantQueue,
    pool: &PgPool,
    bytes: Vec<u8>,
) -> Result<(), blob::BlobError> {
    match evidence.push(bytes) {
        Ok(()) => Ok(()),
        Err(bytes) => blob::put_unflushed(pool, &[bytes]).await,
    }
}

/// Stores queued grants until the server stops, and then the remaining grants.
pub(crate) async fn run(
    pool: PgPool,
    stopping: CancellationToken,
    queue: WriteBehindQueue<Vec<u8>>,
) {
    while let Some(batch) = queue.next_batch(&stopping).await {
        if let Err(reason) = blob::put_unflushed(&pool, &batch).await {
            warn!(count = batch.len(), error = %reason, "Cannot store grants; each is reproduced when it is needed");
        }
    }
}
