//! Finds components that use outdated outputs.
use std::collections::BTreeMap;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Deployed, Install, Outputs};
use crate::run::plan::StaleOutputs;

/// Order of output changes and of the steps that read outputs. The domain has no clock, so a
/// counter of output changes serves as the time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct OutputVersions {
    /// Number of output changes of the install so far.
    changes: u64,
    /// Value of `changes` after the last change of the sandbox's outputs.
    sandbox: u64,
    /// Value of `changes` after the last change of each component's outputs, by name.
    components: BTreeMap<String, u64>,
    /// Value of `changes` when the current reservation of each component began, by component name.
    begun: BTreeMap<String, u64>,
}

impl OutputVersions {
    /// Records that a step reserved the component. The step reads outputs now or later.
    pub(super) fn begin(&mut self, name: &str) {
        self.begun.insert(name.into(), self.changes);
    }

    pub(super) fn end(&mut self, name: &str) {
        self.begun.remove(name);
    }

    /// Returns the value of `changes` when the step that holds the component began, or the current
    /// value if no step holds it.
    pub(super) fn began_at(&self, name: &str) -> u64 {
        self.begun.get(name).copied().unwrap_or(self.changes)
    }

    /// Records new outputs of the sandbox. Identical outputs are not a change.
    pub(super) fn update_sandbox(&mut self, before: Option<&Outputs>, now: &Outputs) {
        if differ(before, now) {
            self.changes += 1;
            self.sandbox = self.changes;
        }
    }

    /// Records new outputs of a component. Identical outputs are not a change.
    pub(super) fn update_component(&mut self, name: &str, before: Option<&Outputs>, now: &Outputs) {
        if differ(before, now) {
            self.changes += 1;
            self.components.insert(name.into(), self.changes);
        }
    }
}

impl Install {
    /// Returns the outputs that changed since the step that deployed the component began.
    ///
    /// A component may keep outdated outputs after the run that changed them has finished. For
    /// example, its plan was denied, its apply was refused, or a user deployed other components.
    pub(super) fn stale_outputs(&self, component: &Deployed) -> StaleOutputs {
        let is_stale = |(_, changed_at): &(&String, &u64)| **changed_at > component.read_at;
        let components = self.output_versions.components.iter().filter(is_stale);
        StaleOutputs {
            sandbox: self.output_versions.sandbox > component.read_at,
            components: components.map(|(name, _)| name.clone()).collect(),
        }
    }
}

/// Returns true if the outputs differ. `None` counts as no outputs.
fn differ(before: Option<&Outputs>, now: &Outputs) -> bool {
    before.map_or(!now.is_empty(), |before| before != now)
}
