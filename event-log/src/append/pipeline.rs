//! Pipelined batch: prepared while the previous one is in flight, so that the database does not
//! wait for this process.
use std::task::Poll;

use super::{
    batch::Batch,
    head::Head,
    queue::{FULL_BATCH, PendingCommit, Queue},
    statement::PreparedValues,
    versions::{StaleStreams, Versions},
};

/// Commits that were numbered, and whose values were bound, as if the batch in flight were
/// committed.
pub(crate) struct PreparedBatch {
    pub commits: Vec<PendingCommit>,
    pub numbered: NumberedBatch,
    pub values: Option<PreparedValues>,
}

/// Batch with the head that it follows, and the stale streams, whose commits it omits.
pub(crate) struct NumberedBatch {
    pub batch: Batch,
    pub stale: StaleStreams,
    pub before: Head,
}

impl NumberedBatch {
    /// Returns true if the batch is still correct: the head is the one that it follows, and the
    /// same streams are stale.
    pub(crate) fn is_current(
        &self,
        head: &Head,
        commits: &[PendingCommit],
        versions: &mut Versions,
    ) -> bool {
        self.before.is_same(head) && self.stale == versions.stale_streams(commits)
    }
}

/// Awaits a future, and calls `meanwhile` if it is not ready at once.
pub(crate) async fn if_pending<T>(future: impl Future<Output = T>, meanwhile: impl FnOnce()) -> T {
    let mut future = std::pin::pin!(future);
    match futures::poll!(&mut future) {
        Poll::Ready(output) => output,
        Poll::Pending => {
            meanwhile();
            future.await
        }
    }
}

/// Polls a future once, which sends its request, calls `meanwhile`, and awaits the future.
pub(crate) async fn after_sending<T>(
    future: impl Future<Output = T>,
    meanwhile: impl FnOnce(),
) -> T {
    let mut future = std::pin::pin!(future);
    let first = futures::poll!(&mut future);
    meanwhile();
    match first {
        Poll::Ready(output) => output,
        Poll::Pending => future.await,
    }
}

/// Awaits the batch in flight. Meanwhile, as soon as a full batch waits, prepares it as `next`.
pub(crate) async fn prepare_during<T>(
    in_flight: impl Future<Output = T>,
    queue: &mut Queue,
    next: &mut Option<PreparedBatch>,
    mut prepare: impl FnMut(Vec<PendingCommit>) -> PreparedBatch,
) -> T {
    let mut in_flight = std::pin::pin!(in_flight);
    loop {
        tokio::select! {
            biased;
            output = &mut in_flight => return output,
            () = queue.receive_more(), if next.is_none() => {
                if queue.len() >= FULL_BATCH {
                    *next = Some(prepare(queue.select()));
                }
            }
        }
    }
}
