//! Known state versions of components. The runner refuses an older state or another lineage unless
//! a user accepts it.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Decision, Install, InstallError, InstallEvent};
use crate::{
    actor::Actor,
    ids::{RunId, StepId},
    state_version::{LINEAGE_BYTES, StateVersion},
};

/// Name of the sandbox in maps by component name.
pub(super) const SANDBOX: &str = "sandbox";

/// Known state version of one component.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct KnownState {
    /// Last version that was recorded or accepted. `None` after the component was destroyed.
    pub newest: Option<StateVersion>,
    /// Version that a user accepted last.
    pub accepted: Option<StateVersion>,
    /// Number of accepted versions so far.
    pub decisions: u64,
}

/// Maximum length of the name of a component in bytes.
const NAME_BYTES: usize = 64;

/// Returns true if a config can have a component of this name, or if it is the sandbox.
pub fn is_component_name(name: &str) -> bool {
    let is_start = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    name.len() <= NAME_BYTES
        && name.as_bytes().first().is_some_and(is_start)
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl Install {
    /// Returns true if the install has or had the component, so that the component may have a state.
    pub fn may_have_state(&self, name: &str) -> bool {
        name == SANDBOX
            || self.components.contains_key(name)
            || self.holders.contains_key(name)
            || self.states.contains_key(name)
    }

    /// Records a state version that is newer than the known version, has another lineage, or is the
    /// first. The runner has already checked that the state is allowed.
    pub(super) fn record_state(
        &self,
        name: String,
        run: RunId,
        step: StepId,
        state: StateVersion,
    ) -> Vec<InstallEvent> {
        let known = self.states.get(&name).and_then(|known| known.newest.as_ref());
        let is_known = known
            .is_some_and(|known| known.lineage == state.lineage && known.serial >= state.serial);
        if is_known || !state.is_valid() {
            return vec![];
        }
        vec![InstallEvent::StateRecorded { name, run, step, state }]
    }

    /// Accepts a state version by decision of a user. A repetition of the last decision changes
    /// nothing, unless a runner has reported another state since.
    pub(super) fn accept_state(
        &self,
        name: String,
        state: StateVersion,
        by: Actor,
        reason: String,
    ) -> Decision {
        let known = self.states.get(&name);
        let is_deployed =
            self.components.contains_key(&name) || (name == SANDBOX && self.sandbox.is_some());
        if known.is_none() && !is_deployed {
            return Err(InstallError::NoSuchComponent { name });
        }
        let is_it = |version: &Option<StateVersion>| {
            version.as_ref().is_some_and(|version| version.is_same(&state))
        };
        let is_repeated = known.is_some_and(|known| is_it(&known.newest) && is_it(&known.accepted))
            && !self.awaited_states.contains_key(&name);
        if is_repeated {
            return Ok(vec![]);
        }
        if !state.is_valid() {
            return Err(InstallError::InvalidLineage { most: LINEAGE_BYTES });
        }
        Ok(vec![InstallEvent::StateAccepted { name, state, by, reason }])
    }

    /// Awaits a state that only the host of a job has. Has no effect without a digest: such a state
    /// is not stored at the server.
    pub(super) fn await_state(
        &self,
        name: String,
        run: RunId,
        step: StepId,
        state: StateVersion,
    ) -> Vec<InstallEvent> {
        let is_known = self.awaited_states.get(&name).is_some_and(|known| known.is_same(&state));
        if is_known || state.digest.is_none() || !state.is_valid() {
            return vec![];
        }
        vec![InstallEvent::StateAwaited { name, run, step, state }]
    }

    /// Ends the wait for a state if this one is the awaited state, a later one, or a decision.
    pub(super) fn record_state_arrival(
        &self,
        name: String,
        state: StateVersion,
        is_decided: bool,
    ) -> Vec<InstallEvent> {
        let Some(awaited) = self.awaited_states.get(&name) else { return vec![] };
        if !state.includes(awaited) && !is_decided {
            return vec![];
        }
        vec![InstallEvent::StateArrived { name, state }]
    }

    pub(super) fn state_recorded(&mut self, name: String, state: StateVersion) {
        self.states.entry(name).or_default().newest = Some(state);
    }

    pub(super) fn state_accepted(&mut self, name: String, state: StateVersion) {
        self.awaited_states.remove(&name);
        let known = self.states.entry(name).or_default();
        known.decisions += 1;
        known.newest = Some(state.clone());
        known.accepted = Some(state);
    }

    /// Removes the newest version, because the next apply creates a new state. The number of
    /// decisions stays.
    pub(super) fn state_destroyed(&mut self, name: &str) {
        if let Some(known) = self.states.get_mut(name) {
            known.newest = None;
        }
    }
}
