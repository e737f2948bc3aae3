//! What the vendor knows to be there and this host has no state of.
//!
//! A runner that took the place of a lost one begins with an empty directory. A plan from no state says
//! that there is nothing to destroy, or brings everything a second time; so none is made.

use std::{fs, io, path::PathBuf};

use super::{
    contract::PluginError,
    plugin::{Operation, StateMark, Work},
    work::write_private,
};

/// Says that the component needs no state, because nothing of it is in the account.
const NOTHING: &str = "nothing-brought";

/// # Errors
/// [`PluginError::Refused`] with what is missing and where it belongs.
pub(super) fn check(work: &Work<'_>, state: &StateMark) -> Result<(), PluginError> {
    if !work.present || state.lineage.is_some() || marker(work).exists() {
        return Ok(());
    }
    let (name, dir) = (work.name, work.state_dir.display());
    Err(PluginError::Refused(format!(
        "{name} was brought before, and its state is not on this host: put what the former runner had in \
         its state/{name} into {dir} and retry; if nothing of {name} is left in the account, make an \
         empty file {NOTHING} there instead"
    )))
}

/// Before its first apply nothing of it is there; and a module can have nothing to bring. The vendor takes
/// it as there from the beginning of its first apply on, which may never have reached this host.
pub(super) fn remember(work: &Work<'_>, state: &StateMark) -> Result<(), PluginError> {
    let nothing = state.lineage.is_none() && work.operation == Operation::Apply;
    if !nothing || marker(work).exists() {
        return Ok(());
    }
    write_private(&marker(work), b"")
}

/// From now on there is a state, and it can be lost.
pub(super) fn forget(work: &Work<'_>) {
    let _is_seldom_there: io::Result<()> = fs::remove_file(marker(work));
}

fn marker(work: &Work<'_>) -> PathBuf {
    work.state_dir.join(NOTHING)
}
