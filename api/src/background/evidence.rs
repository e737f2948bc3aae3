//! Keeps the grants that were given, many at a time. A grant is made again, byte for byte, whenever its claim is repeated
//! or asked for, so neither a claim nor a storm of them waits for the disk.
use event_log::blob;
use sqlx::PgPool;
use tracing::warn;

use super::unhurried::{Left, Unhurried};
use crate::state::App;

/// Where a grant is left to be kept.
pub type Evidence = Unhurried<Vec<u8>>;

/// Leave these bytes, or keep them at once where too many wait.
pub async fn keep(
    evidence: &Evidence,
    pool: &PgPool,
    bytes: Vec<u8>,
) -> Result<(), blob::BlobError> {
    match evidence.leave(bytes) {
        Ok(()) => Ok(()),
        Err(bytes) => blob::put_unhurried(pool, &[bytes]).await,
    }
}

/// Keep what is left until the server stops, and then the rest.
pub async fn run(app: App, left: Left<Vec<u8>>) {
    while let Some(some) = left.next(&app.stopping).await {
        if let Err(reason) = blob::put_unhurried(&app.pool, &some).await {
            let number = some.len();
            warn!(number, reason = %reason, "{number} grants are not kept; each is made again when it is asked for: {reason}");
        }
    }
}
