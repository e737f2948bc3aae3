//! Numbers the next batch while the last one is on its way, where many wait: the database need not wait for us.
use super::{
    batch::Batch,
    head::Head,
    queue::{ENOUGH, Pending, Queue},
    versions::{Late, Versions},
};

/// Commits that were numbered as if the batch before them were written.
pub(crate) struct Ahead {
    pub commits: Vec<Pending>,
    pub numbered: Numbered,
}

/// A batch, and the head that it was numbered on.
pub(crate) struct Numbered {
    pub batch: Batch,
    pub late: Late,
    pub before: Head,
}

impl Numbered {
    /// Whether it is still what would be sent: nothing else happened to the log, and nobody was found to be late.
    pub(crate) fn holds(&self, head: &Head, commits: &[Pending], versions: &mut Versions) -> bool {
        self.before.is(head) && self.late == versions.late(commits)
    }
}

/// Wait for the answer to what was sent; meanwhile, as soon as enough wait, number them with `number`.
pub(crate) async fn during<T>(
    sent: impl Future<Output = T>,
    queue: &mut Queue,
    next: &mut Option<Ahead>,
    mut number: impl FnMut(&[Pending]) -> Numbered,
) -> T {
    let mut sent = std::pin::pin!(sent);
    loop {
        tokio::select! {
            // The answer first. It is also what brings the statement on its way.
            biased;
            answer = &mut sent => return answer,
            () = queue.joined(), if next.is_none() => {
                if queue.waiting() >= ENOUGH {
                    let commits = queue.select();
                    let numbered = number(&commits);
                    *next = Some(Ahead { commits, numbered });
                }
            }
        }
    }
}
