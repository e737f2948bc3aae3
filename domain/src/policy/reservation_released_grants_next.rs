//! Continues the runs of an install after a step released a resource, because other steps may wait
//! for the resource.
use super::{PolicyEvent, Reaction};
use crate::install::InstallEvent;

pub(super) fn react(event: &PolicyEvent) -> Option<Reaction> {
    match event {
        PolicyEvent::Install(
            install,
            InstallEvent::ComponentReleased { .. } | InstallEvent::SandboxReleased { .. },
        ) => Some(Reaction::ContinueRunsOfInstall(*install)),
        PolicyEvent::App(..)
        | PolicyEvent::Build(..)
        | PolicyEvent::Install(..)
        | PolicyEvent::Job(..)
        | PolicyEvent::Run(..) => None,
    }
}
