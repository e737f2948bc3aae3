//! Continues the runs that wait for an artifact when its build has ended.
use super::{Fact, Reaction};
use crate::build::BuildEvent;

pub(super) fn react(fact: &Fact) -> Option<Reaction> {
    match fact {
        Fact::Build(build, BuildEvent::Succeeded { .. } | BuildEvent::Failed { .. }) => {
            Some(Reaction::WakeWaitersOfBuild(*build))
        }
        Fact::Build(..) | Fact::Install(..) | Fact::Job(..) | Fact::Run(..) => None,
    }
}
