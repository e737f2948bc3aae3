//! Who runs on outputs that have become others since.
use std::collections::BTreeMap;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Deployed, Install, Outputs};
use crate::run::plan::Missed;

/// When outputs became others, and when steps began to read them: counted, because nothing here knows the clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Readings {
    /// How often any outputs became others.
    moves: u64,
    /// At which of these moves the sandbox's did last.
    sandbox: u64,
    /// The same of components, by name.
    components: BTreeMap<String, u64>,
    /// After how many moves the step that holds a component began, by name.
    begun: BTreeMap<String, u64>,
}

impl Readings {
    /// A step holds the component: its manifest is made of what is there from now on.
    pub(super) fn begin(&mut self, name: &str) {
        self.begun.insert(name.into(), self.moves);
    }

    /// It holds it no more.
    pub(super) fn end(&mut self, name: &str) {
        self.begun.remove(name);
    }

    /// After how many moves the step that holds a component began to read.
    pub(super) fn begun(&self, name: &str) -> u64 {
        self.begun.get(name).copied().unwrap_or(self.moves)
    }

    /// The sandbox has these outputs now.
    pub(super) fn sandbox(&mut self, before: Option<&Outputs>, now: &Outputs) {
        if differ(before, now) {
            self.moves += 1;
            self.sandbox = self.moves;
        }
    }

    /// A component has these outputs now.
    pub(super) fn component(&mut self, name: &str, before: Option<&Outputs>, now: &Outputs) {
        if differ(before, now) {
            self.moves += 1;
            self.components.insert(name.into(), self.moves);
        }
    }
}

impl Install {
    /// What became another after a component had read it. A run may end between the two: its plan is
    /// denied, its apply is refused, somebody deploys by name.
    pub(super) fn missed(&self, has: &Deployed) -> Missed {
        let later = |(_, moved): &(&String, &u64)| **moved > has.read_at;
        let components = self.readings.components.iter().filter(later);
        Missed {
            sandbox: self.readings.sandbox > has.read_at,
            components: components.map(|(name, _)| name.clone()).collect(),
        }
    }
}

/// What is not there gives as much to others as what has no outputs.
fn differ(before: Option<&Outputs>, now: &Outputs) -> bool {
    before.map_or(!now.is_empty(), |before| before != now)
}
