//! When a job has ended, the step that it was for hears of it.
use super::{Fact, Reaction};

pub(super) fn react(fact: &Fact) -> Option<Reaction> {
    match fact {
        Fact::Job(job, event) if event.is_end() => Some(Reaction::SettleStep(*job)),
        Fact::Build(..) | Fact::Install(..) | Fact::Job(..) | Fact::Run(..) => None,
    }
}
