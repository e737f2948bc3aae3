//! What a claim looks up in the journal, in memory: a claim reads only what was written since the last one.
use std::{collections::BTreeSet, io};

use domain::ids::ExecutionId;

use super::quarantine::Starts;
use crate::journal::{Fact, Journal, Position};

/// Executions that are remembered, beyond the current file of the journal.
const REMEMBERED: usize = 100_000;

/// Index of the journal for claims.
#[derive(Debug, Default)]
pub(crate) struct ClaimIndex {
    read: Position,
    granted: BTreeSet<ExecutionId>,
    starts: Starts,
}

impl ClaimIndex {
    /// Reads what the journal has in addition.
    pub(super) fn refresh(&mut self, journal: &Journal) -> io::Result<()> {
        for entry in journal.read_on(&mut self.read)? {
            self.starts.take(&entry.fact);
            if let Fact::Claimed { execution, .. } = entry.fact {
                self.granted.insert(execution);
            }
        }
        while self.granted.len() > REMEMBERED {
            // Ids begin with a time: the oldest goes.
            self.granted.pop_first();
        }
        Ok(())
    }

    /// Whether this execution was granted here before. Such an answer to a claim is an old one, sent again.
    pub(super) fn was_granted(&self, execution: ExecutionId) -> bool {
        self.granted.contains(&execution)
    }

    pub(super) fn starts(&self) -> &Starts {
        &self.starts
    }
}
