//! State of the components as the log has it: an older one, or one of another lineage, needs a decision.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Decision, Install, InstallError, InstallEvent};
use crate::{
    actor::Actor,
    ids::{RunId, StepId},
    state_version::{LINEAGE_BYTES, StateVersion},
};

/// Name of the sandbox among the components.
const SANDBOX: &str = "sandbox";

/// State of one component.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct KnownState {
    /// The newest one that was reported or accepted; none after the component was destroyed.
    pub newest: Option<StateVersion>,
    /// The one that a user accepted last.
    pub accepted: Option<StateVersion>,
    /// Number of decisions so far.
    pub decisions: u64,
}

impl Install {
    /// Records a state that is newer than what is known. The runner has refused what is older.
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

    /// Repeating the last decision changes nothing.
    pub(super) fn accept_state(
        &self,
        name: String,
        state: StateVersion,
        by: Actor,
        reason: String,
    ) -> Decision {
        let known = self.states.get(&name);
        let is_there =
            self.components.contains_key(&name) || (name == SANDBOX && self.sandbox.is_some());
        if known.is_none() && !is_there {
            return Err(InstallError::NoSuchComponent { name });
        }
        let is_repeated = known.is_some_and(|known| {
            known.newest.as_ref() == Some(&state) && known.accepted.as_ref() == Some(&state)
        });
        if is_repeated {
            return Ok(vec![]);
        }
        if !state.is_valid() {
            return Err(InstallError::InvalidLineage { most: LINEAGE_BYTES });
        }
        Ok(vec![InstallEvent::StateAccepted { name, state, by, reason }])
    }

    pub(super) fn state_recorded(&mut self, name: String, state: StateVersion) {
        self.states.entry(name).or_default().newest = Some(state);
    }

    pub(super) fn state_accepted(&mut self, name: String, state: StateVersion) {
        let known = self.states.entry(name).or_default();
        known.decisions += 1;
        known.newest = Some(state.clone());
        known.accepted = Some(state);
    }

    /// The next apply creates a new state. The numbering of decisions continues.
    pub(super) fn state_destroyed(&mut self, name: &str) {
        if let Some(known) = self.states.get_mut(name) {
            known.newest = None;
        }
    }
}
