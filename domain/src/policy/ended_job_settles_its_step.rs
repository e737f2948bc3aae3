//! Completes a step when its job has ended.
use super::{Fact, Reaction};

pub(super) fn react(fact: &Fact) -> Option<Reaction> {
    match fact {
        Fact::Job(job, event) if event.is_end() => Some(Reaction::SettleStep(*job)),
        Fact::Build(..) | Fact::Install(..) | Fact::Job(..) | Fact::Run(..) => None,
    }
}
