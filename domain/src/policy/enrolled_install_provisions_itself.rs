//! When an install's runner has brought what the stack gave it, the install provisions itself,
//! unless it has begun before.
use super::{Fact, Reaction};
use crate::install::InstallEvent;

pub(super) fn react(fact: &Fact) -> Option<Reaction> {
    match fact {
        Fact::Install(install, InstallEvent::StackOutputsReported { .. }) => {
            Some(Reaction::Provision(*install))
        }
        Fact::Build(..) | Fact::Install(..) | Fact::Job(..) | Fact::Run(..) => None,
    }
}
