//! Continues the runs of an install when a state that only the runner's host had is no longer
//! awaited, because steps may wait for it.
use super::{PolicyEvent, Reaction};
use crate::install::InstallEvent;

pub(super) fn react(event: &PolicyEvent) -> Option<Reaction> {
    match event {
        PolicyEvent::Install(
            install,
            InstallEvent::StateArrived { .. } | InstallEvent::StateAccepted { .. },
        ) => Some(Reaction::ContinueRunsOfInstall(*install)),
        PolicyEvent::App(..)
        | PolicyEvent::Build(..)
        | PolicyEvent::Install(..)
        | PolicyEvent::Job(..)
        | PolicyEvent::Run(..) => None,
    }
}
