//! When a build has ended, the steps that waited for its artifact go on.
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
