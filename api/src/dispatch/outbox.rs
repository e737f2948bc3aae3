//! Directives of a session that its runner has not acknowledged.
use std::collections::HashSet;

use domain::ids::{ExecutionId, JobId, SessionId};
use schemas::runner::{Directive, SentDirective};

/// Subject of a directive. The outbox has at most one directive per subject: a newer directive
/// replaces an older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DirectiveSubject {
    /// Offer of this job.
    Offer(JobId),
    /// Cancellation of this execution. True for a forced cancellation.
    Cancel(ExecutionId, bool),
    /// Start or end of reading this job's log.
    Tail(JobId),
    /// Drain or resume of the runner.
    Intake,
    /// Request for a new identity key.
    Rekey,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    session: SessionId,
    sent: u64,
    waiting: Vec<(DirectiveSubject, SentDirective)>,
    acknowledged: HashSet<DirectiveSubject>,
}

impl Outbox {
    pub(crate) fn new(session: SessionId) -> Self {
        Outbox { session, sent: 0, waiting: Vec::new(), acknowledged: HashSet::new() }
    }

    /// Queues a directive. Returns false if it is already queued, or if a directive on its subject
    /// was acknowledged.
    pub(crate) fn push(&mut self, about: DirectiveSubject, directive: Directive) -> bool {
        if self.acknowledged.contains(&about) {
            return false;
        }
        if let Some((_, waiting)) = self.waiting.iter_mut().find(|(known, _)| *known == about) {
            let is_new = waiting.directive != directive;
            waiting.directive = directive;
            return is_new;
        }
        self.sent += 1;
        let id = format!("{}-{}", self.session.0, self.sent);
        self.waiting.push((about, SentDirective { id, directive }));
        true
    }

    /// Removes a directive that no longer applies, and its acknowledgement.
    pub(crate) fn withdraw(&mut self, about: DirectiveSubject) {
        self.waiting.retain(|(known, _)| *known != about);
        self.acknowledged.remove(&about);
    }

    /// Records the runner's acknowledgements. Unknown ids are ignored.
    pub(crate) fn ack(&mut self, ids: &[String]) {
        let Outbox { waiting, acknowledged, .. } = self;
        waiting.retain(|(about, sent)| {
            let known = ids.contains(&sent.id);
            if known {
                acknowledged.insert(*about);
            }
            !known
        });
    }

    /// Directives without an acknowledgement, in the order in which they were queued.
    pub(crate) fn unacknowledged(&self) -> Vec<SentDirective> {
        self.waiting.iter().map(|(_, sent)| sent.clone()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox() -> Outbox {
        Outbox::new("ses_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap())
    }

    fn drain(reason: &str) -> Directive {
        Directive::Drain { reason: reason.into() }
    }

    #[test]
    fn directive_is_sent_until_it_is_acknowledged() {
        let mut outbox = outbox();
        assert!(outbox.push(DirectiveSubject::Intake, drain("night")));
        let first = outbox.unacknowledged();
        assert_eq!(outbox.unacknowledged(), first, "not acknowledged yet");
        outbox.ack(&[first[0].id.clone(), "another".into()]);
        assert!(outbox.is_empty());
        assert!(!outbox.push(DirectiveSubject::Intake, drain("night")), "already acknowledged");
    }

    #[test]
    fn withdrawn_directive_can_be_sent_again_with_a_new_id() {
        let mut outbox = outbox();
        outbox.push(DirectiveSubject::Intake, drain("night"));
        let first = outbox.unacknowledged();
        outbox.ack(&[first[0].id.clone()]);
        outbox.withdraw(DirectiveSubject::Intake);
        assert!(outbox.push(DirectiveSubject::Intake, Directive::Resume));
        assert_ne!(outbox.unacknowledged()[0].id, first[0].id);
    }

    #[test]
    fn newer_directive_replaces_an_older_one_on_the_same_subject() {
        let mut outbox = outbox();
        assert!(outbox.push(DirectiveSubject::Intake, drain("night")));
        assert!(!outbox.push(DirectiveSubject::Intake, drain("night")));
        assert!(outbox.push(DirectiveSubject::Intake, Directive::Resume));
        assert_eq!(outbox.unacknowledged().len(), 1);
    }
}
