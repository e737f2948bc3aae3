//! Keeps the grants that were given, many at a time. A grant is made again, byte for byte, whenever its claim is repeated
//! or asked for, so neither a claim nor a storm of them waits for the disk.
use event_log::blob;
use sqlx::PgPool;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tracing::warn;

use crate::state::App;

/// How many may wait to be kept; beyond that a claim keeps its own.
const WAITING: usize = 4_096;
/// How many are kept at once.
const TOGETHER: usize = 256;

/// Where a grant is left to be kept.
pub struct Evidence(Sender<Vec<u8>>);

/// What was left, for the one loop that keeps it.
pub struct Left(Receiver<Vec<u8>>);

/// Both ends.
pub fn channel() -> (Evidence, Left) {
    let (leave, left) = mpsc::channel(WAITING);
    (Evidence(leave), Left(left))
}

impl Evidence {
    /// Leave these bytes, or keep them at once where too many wait.
    pub async fn keep(&self, pool: &PgPool, bytes: Vec<u8>) -> Result<(), blob::BlobError> {
        match self.0.try_send(bytes) {
            Ok(()) => Ok(()),
            Err(
                mpsc::error::TrySendError::Full(bytes) | mpsc::error::TrySendError::Closed(bytes),
            ) => blob::put_unhurried(pool, &[bytes]).await,
        }
    }
}

/// Keep what is left until the server stops, and then the rest.
pub async fn run(app: App, Left(mut left): Left) {
    let mut some = Vec::new();
    loop {
        let came = tokio::select! {
            biased;
            () = app.stopping.cancelled(), if !left.is_closed() => {
                left.close();
                continue;
            }
            came = left.recv_many(&mut some, TOGETHER) => came,
        };
        if came == 0 {
            return;
        }
        if let Err(reason) = blob::put_unhurried(&app.pool, &some).await {
            let number = some.len();
            warn!(number, reason = %reason, "{number} grants are not kept; each is made again when it is asked for: {reason}");
        }
        some.clear();
    }
}
