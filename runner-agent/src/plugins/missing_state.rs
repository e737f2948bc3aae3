//! Refuses to plan a provisioned component whose state is not on this host.
//!
//! A runner that replaces a lost runner starts with an empty directory. Without state, a plan would
//! have nothing to destroy, or would create everything a second time.

use super::{
    contract::PluginError,
    plugin::{Halt, Operation, Work},
};
use crate::state::StateMark;

/// Refuses to plan without state if the manifest says that the component is provisioned. If the
/// manifest does not, [`StateStore::check_known`](crate::state::StateStore::check_known) refuses a
/// missing state that this runner has seen before.
///
/// # Errors
/// [`PluginError::Refused`] with the missing state and the directory that it belongs to.
pub(super) fn check(work: &Work<'_>, state: &StateMark) -> Result<(), PluginError> {
    if !work.present || state.lineage.is_some() || work.state.is_marked_as_nothing() {
        return Ok(());
    }
    let (name, dir) = (work.name, work.state.dir().display());
    Err(PluginError::Refused(format!(
        "cannot plan {name}: it was deployed before and its state is not on this host; copy \
         state/{name} of the former runner to {dir} and retry; if nothing of {name} is left in the account, run \
         `stead-runner state resolve {name} --nothing-exists --reason TEXT` on the runner's host"
    )))
}

/// Records that nothing of a component exists before its first apply. A later plan is then allowed
/// without state.
///
/// The vendor counts the component as provisioned from the start of its first apply, which may
/// never reach this host. A module can also have nothing to create.
pub(super) fn record_first_apply(work: &Work<'_>, state: &StateMark) -> Result<(), Halt> {
    let nothing = state.lineage.is_none() && work.operation == Operation::Apply;
    if !nothing || work.state.is_marked_as_nothing() {
        return Ok(());
    }
    Ok(work.state.mark_as_nothing()?)
}
