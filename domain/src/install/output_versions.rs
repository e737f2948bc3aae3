//! Finds components that use outdated outputs.
use std::collections::BTreeMap;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Deployed, Install, Outputs};
use crate::run::plan::StaleOutputs;

/// Order of output changes and of the steps that read outputs. A counter provides it, because the
/// domain has no clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct OutputVersions {
    /// Number of output changes so far.
    changes: u64,
    /// Counter at the last change of the sandbox's outputs.
    sandbox: u64,
    /// Counter at the last change of each component's outputs, by name.
    components: BTreeMap<String, u64>,
    /// Counter when the step that holds a component began, by component name.
    begun: BTreeMap<String, u64>,
}

impl OutputVersions {
    /// Records that a step reserved the component. The step reads the outputs of this time or later
    /// ones.
    pub(super) fn begin(&mut self, name: &str) {
        self.begun.insert(name.into(), self.changes);
    }

    /// Records that the step released the component.
    pub(super) fn end(&mut self, name: &str) {
        self.begun.remove(name);
    }

    /// Returns the counter when the step that holds the component began to read outputs.
    pub(super) fn begun(&self, name: &str) -> u64 {
        self.begun.get(name).copied().unwrap_or(self.changes)
    }

    /// Records new outputs of the sandbox. Identical outputs are not a change.
    pub(super) fn sandbox(&mut self, before: Option<&Outputs>, now: &Outputs) {
        if differ(before, now) {
            self.changes += 1;
            self.sandbox = self.changes;
        }
    }

    /// Records new outputs of a component. Identical outputs are not a change.
    pub(super) fn component(&mut self, name: &str, before: Option<&Outputs>, now: &Outputs) {
        if differ(before, now) {
            self.changes += 1;
            self.components.insert(name.into(), self.changes);
        }
    }
}

impl Install {
    /// Returns the outputs that changed after a component had read them. The run of the change may
    /// end before the component is deployed again: a plan is denied, an apply is refused, or a user
    /// deploys by name.
    pub(super) fn stale_outputs(&self, has: &Deployed) -> StaleOutputs {
        let later = |(_, moved): &(&String, &u64)| **moved > has.read_at;
        let components = self.output_versions.components.iter().filter(later);
        StaleOutputs {
            sandbox: self.output_versions.sandbox > has.read_at,
            components: components.map(|(name, _)| name.clone()).collect(),
        }
    }
}

/// Returns true if the outputs differ. A missing component counts as one without outputs.
fn differ(before: Option<&Outputs>, now: &Outputs) -> bool {
    before.map_or(!now.is_empty(), |before| before != now)
}
