//! Mistakes of an appender, made on purpose: see [`proof::planted`].
use proof::planted::{Bug, has};
use tokio::sync::oneshot;

use super::{batch::Batch, queue::Pending, versions::StaleStreams};
use crate::Appended;

/// Everybody hears that it is done, and only then it is tried.
pub(super) fn answer_before_commit(batch: &Batch, part: &mut [Pending], late: &StaleStreams) {
    if !has(Bug::AnswerBeforeCommit) {
        return;
    }
    let (commit_no, recorded_at) = (batch.head.commit_no, batch.head.recorded_at);
    let sent = part.iter_mut().filter(|pending| !late.is(pending));
    for (pending, (first, last)) in sent.zip(&batch.spans) {
        let (unheard, _) = oneshot::channel();
        let answer = std::mem::replace(&mut pending.answer, unheard);
        let _ = answer.send(Ok(Appended { first: *first, last: *last, commit_no, recorded_at }));
    }
}

/// Panics where the writer is about to write.
#[allow(clippy::panic, reason = "this is the injected fault")]
pub(super) fn panics() {
    if has(Bug::PanicInAppender) {
        panic!("injected fault");
    }
}

pub(super) fn retries_in_doubt() -> bool {
    has(Bug::RetryInDoubt)
}
