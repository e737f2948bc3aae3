//! Requests the first provision after the enrolled runner reported stack outputs. The use case
//! ignores the request if a run that deploys was admitted before.
use super::{PolicyEvent, Reaction};
use crate::install::InstallEvent;

pub(super) fn react(event: &PolicyEvent) -> Option<Reaction> {
    match event {
        PolicyEvent::Install(install, InstallEvent::StackOutputsReported { .. }) => {
            Some(Reaction::Provision(*install))
        }
        PolicyEvent::App(..)
        | PolicyEvent::Build(..)
        | PolicyEvent::Install(..)
        | PolicyEvent::Job(..)
        | PolicyEvent::Run(..) => None,
    }
}
