//! Requests the first provision when an install's runner has reported the stack outputs, unless a
//! run that deploys was admitted before.
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
