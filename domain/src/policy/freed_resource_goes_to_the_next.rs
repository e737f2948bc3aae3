//! Continues the runs of an install when a step has released a resource.
use super::{Fact, Reaction};
use crate::install::InstallEvent;

pub(super) fn react(fact: &Fact) -> Option<Reaction> {
    match fact {
        Fact::Install(
            install,
            InstallEvent::ComponentReleased { .. } | InstallEvent::SandboxReleased { .. },
        ) => Some(Reaction::WakeWaitersOf(*install)),
        Fact::Build(..) | Fact::Install(..) | Fact::Job(..) | Fact::Run(..) => None,
    }
}
