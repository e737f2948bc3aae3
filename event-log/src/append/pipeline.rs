//! Gets the next batch ready while the last one is on its way, where many wait: the database need not wait for us.
use std::task::Poll;

use super::{
    batch::Batch,
    head::Head,
    queue::{ENOUGH, Pending, Queue},
    statement::Early,
    versions::{StaleStreams, Versions},
};

/// Commits that were numbered, and written down, as if the batch before them were written.
pub(crate) struct PreparedBatch {
    pub commits: Vec<Pending>,
    pub numbered: NumberedBatch,
    pub early: Option<Early>,
}

/// A batch, and the head that it was numbered on.
pub(crate) struct NumberedBatch {
    pub batch: Batch,
    pub late: StaleStreams,
    pub before: Head,
}

impl NumberedBatch {
    /// Whether it is still what would be sent: nothing else happened to the log, and nobody was found to be late.
    pub(crate) fn holds(&self, head: &Head, commits: &[Pending], versions: &mut Versions) -> bool {
        self.before.is(head) && self.late == versions.late(commits)
    }
}

/// Wait, and pay what is owed before, if there is anything to wait for.
pub(crate) async fn waiting<T>(what: impl Future<Output = T>, pay: impl FnOnce()) -> T {
    let mut what = std::pin::pin!(what);
    match futures::poll!(&mut what) {
        Poll::Ready(answer) => answer,
        Poll::Pending => {
            pay();
            what.await
        }
    }
}

/// Do what brings something on its way, then pay what is owed, then wait for the end of it.
pub(crate) async fn paying<T>(on_its_way: impl Future<Output = T>, pay: impl FnOnce()) -> T {
    let mut on_its_way = std::pin::pin!(on_its_way);
    let first = futures::poll!(&mut on_its_way);
    pay();
    match first {
        Poll::Ready(answer) => answer,
        Poll::Pending => on_its_way.await,
    }
}

/// Wait for the answer to what was sent; meanwhile, as soon as enough wait, get them ready with `number`.
pub(crate) async fn during<T>(
    sent: impl Future<Output = T>,
    queue: &mut Queue,
    next: &mut Option<PreparedBatch>,
    mut number: impl FnMut(Vec<Pending>) -> PreparedBatch,
) -> T {
    let mut sent = std::pin::pin!(sent);
    loop {
        tokio::select! {
            biased;
            answer = &mut sent => return answer,
            () = queue.joined(), if next.is_none() => {
                if queue.waiting() >= ENOUGH {
                    *next = Some(number(queue.select()));
                }
            }
        }
    }
}
