//! Faults of the appender that a test activates: see [`proof::fault_injection`].
use proof::fault_injection::{Fault, has};
use tokio::sync::oneshot;

use super::{batch::Batch, queue::PendingCommit, versions::StaleStreams};
use crate::Appended;

/// Acknowledges the commits of a batch before the batch is sent.
pub(super) fn acknowledge_before_commit(
    batch: &Batch,
    commits: &mut [PendingCommit],
    stale: &StaleStreams,
) {
    if !has(Fault::RespondBeforeCommit) {
        return;
    }
    let (commit_no, recorded_at) = (batch.head.commit_no, batch.head.recorded_at);
    let sent = commits.iter_mut().filter(|pending| !stale.contains(pending));
    for (pending, (first, last)) in sent.zip(&batch.spans) {
        let (closed, _) = oneshot::channel();
        let response = std::mem::replace(&mut pending.response, closed);
        let _ = response.send(Ok(Appended { first: *first, last: *last, commit_no, recorded_at }));
    }
}

#[allow(clippy::panic, reason = "this is the injected fault")]
pub(super) fn panic_before_write() {
    if has(Fault::PanicInAppender) {
        panic!("injected fault");
    }
}

/// Returns true if the fault makes the appender send an in-doubt batch again without a check.
pub(super) fn retries_in_doubt() -> bool {
    has(Fault::RetryInDoubt)
}
