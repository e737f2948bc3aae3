//! When a step lets go of what it held, whoever has waited longest for it goes on.
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
