//! Continues the runs that wait for a build, after the end of the build.
use super::{PolicyEvent, Reaction};
use crate::build::BuildEvent;

pub(super) fn react(event: &PolicyEvent) -> Option<Reaction> {
    match event {
        PolicyEvent::Build(
            build,
            BuildEvent::ArtifactReused { .. }
            | BuildEvent::Succeeded { .. }
            | BuildEvent::Failed { .. },
        ) => Some(Reaction::ContinueRunsOfBuild(*build)),
        PolicyEvent::App(..)
        | PolicyEvent::Build(..)
        | PolicyEvent::Install(..)
        | PolicyEvent::Job(..)
        | PolicyEvent::Run(..) => None,
    }
}
