//! Queues the job of a requested build.
use super::{PolicyEvent, Reaction};
use crate::build::BuildEvent;

pub(super) fn react(event: &PolicyEvent) -> Option<Reaction> {
    match event {
        PolicyEvent::Build(build, BuildEvent::Requested(_)) => Some(Reaction::QueueBuild(*build)),
        PolicyEvent::App(..)
        | PolicyEvent::Build(..)
        | PolicyEvent::Install(..)
        | PolicyEvent::Job(..)
        | PolicyEvent::Run(..) => None,
    }
}
