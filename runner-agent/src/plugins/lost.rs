//! What the vendor knows to be there and this host has no state of.
//!
//! A runner that took the place of a lost one begins with an empty directory. A plan from no state says
//! that there is nothing to destroy, or brings everything a second time; so none is made.

use super::{
    contract::PluginError,
    plugin::{Operation, Work},
};
use crate::state::StateMark;

/// What the manifest omits is refused by [`StateStore::check_known`](crate::state::StateStore::check_known).
///
/// # Errors
/// [`PluginError::Refused`] with what is missing and where it belongs.
pub(super) fn check(work: &Work<'_>, state: &StateMark) -> Result<(), PluginError> {
    if !work.present || state.lineage.is_some() || work.state.is_marked_as_nothing() {
        return Ok(());
    }
    let (name, dir) = (work.name, work.state.dir().display());
    Err(PluginError::Refused(format!(
        "{name} was brought before, and its state is not on this host: put what the former runner had in \
         its state/{name} into {dir} and retry; if nothing of {name} is left in the account, run \
         `stead-runner state resolve {name} --nothing-exists --reason TEXT` on the runner's host"
    )))
}

/// Before its first apply nothing of it is there; and a module can have nothing to bring. The vendor takes
/// it as there from the beginning of its first apply on, which may never have reached this host.
pub(super) fn remember(work: &Work<'_>, state: &StateMark) -> Result<(), PluginError> {
    let nothing = state.lineage.is_none() && work.operation == Operation::Apply;
    if !nothing || work.state.is_marked_as_nothing() {
        return Ok(());
    }
    Ok(work.state.mark_as_nothing()?)
}
