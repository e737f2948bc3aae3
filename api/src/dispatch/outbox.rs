//! What a session has still to be told: kept until the runner says that it heard.
use std::collections::HashSet;

use domain::ids::{ExecutionId, JobId, SessionId};
use schemas::runner::{Directive, SentDirective};

/// What a directive is about. One of each waits at most; a repeated one takes the place of the former.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum About {
    /// This job is on offer.
    Offer(JobId),
    /// This execution is to stop; the second time with force.
    Cancel(ExecutionId, bool),
    /// Somebody reads this job's log, or no longer does.
    Tail(JobId),
    /// Whether new work is taken.
    Intake,
    /// A new identity key is wanted.
    Rekey,
}

/// The directives of one session.
#[derive(Debug)]
pub struct Outbox {
    session: SessionId,
    sent: u64,
    waiting: Vec<(About, SentDirective)>,
    heard: HashSet<About>,
}

impl Outbox {
    /// Nothing to say yet.
    pub fn new(session: SessionId) -> Self {
        Outbox { session, sent: 0, waiting: Vec::new(), heard: HashSet::new() }
    }

    /// Say something. False when it waits already, or was heard.
    pub fn push(&mut self, about: About, directive: Directive) -> bool {
        if self.heard.contains(&about) {
            return false;
        }
        if let Some((_, waiting)) = self.waiting.iter_mut().find(|(known, _)| *known == about) {
            let news = waiting.directive != directive;
            waiting.directive = directive;
            return news;
        }
        self.sent += 1;
        let id = format!("{}-{}", self.session.0, self.sent);
        self.waiting.push((about, SentDirective { id, directive }));
        true
    }

    /// Take back what is no longer so, and forget that it was heard.
    pub fn withdraw(&mut self, about: About) {
        self.waiting.retain(|(known, _)| *known != about);
        self.heard.remove(&about);
    }

    /// The runner heard these. Ids that we do not know are of no interest.
    pub fn ack(&mut self, ids: &[String]) {
        let Outbox { waiting, heard, .. } = self;
        waiting.retain(|(about, sent)| {
            let known = ids.contains(&sent.id);
            if known {
                heard.insert(*about);
            }
            !known
        });
    }

    /// All that was not heard, in the order in which it was said.
    pub fn unheard(&self) -> Vec<SentDirective> {
        self.waiting.iter().map(|(_, sent)| sent.clone()).collect()
    }

    /// Whether there is something to say.
    pub fn is_empty(&self) -> bool {
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
    fn a_directive_is_said_until_it_is_heard() {
        let mut outbox = outbox();
        assert!(outbox.push(About::Intake, drain("night")));
        let first = outbox.unheard();
        assert_eq!(outbox.unheard(), first, "nobody acknowledged it");
        outbox.ack(&[first[0].id.clone(), "another".into()]);
        assert!(outbox.is_empty());
        assert!(!outbox.push(About::Intake, drain("night")), "it was heard");
    }

    #[test]
    fn what_is_taken_back_can_be_said_again_under_a_new_name() {
        let mut outbox = outbox();
        outbox.push(About::Intake, drain("night"));
        let first = outbox.unheard();
        outbox.ack(&[first[0].id.clone()]);
        outbox.withdraw(About::Intake);
        assert!(outbox.push(About::Intake, Directive::Resume));
        assert_ne!(outbox.unheard()[0].id, first[0].id);
    }

    #[test]
    fn the_newest_word_on_one_thing_takes_the_place_of_the_former() {
        let mut outbox = outbox();
        assert!(outbox.push(About::Intake, drain("night")));
        assert!(!outbox.push(About::Intake, drain("night")));
        assert!(outbox.push(About::Intake, Directive::Resume));
        assert_eq!(outbox.unheard().len(), 1);
    }
}
