//! Queues the job of a build when the build is requested.
use super::{Fact, Reaction};
use crate::build::BuildEvent;

pub(super) fn react(fact: &Fact) -> Option<Reaction> {
    match fact {
        Fact::Build(build, BuildEvent::Requested(_)) => Some(Reaction::QueueBuild(*build)),
        Fact::Build(..) | Fact::Install(..) | Fact::Job(..) | Fact::Run(..) => None,
    }
}
