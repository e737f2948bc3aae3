//! In-memory index of the journal for claims: a claim reads only the entries since the previous one.
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
    /// Reads the new entries of the journal.
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

    /// Whether this execution was granted here before. Such a response to a claim is a replay.
    pub(super) fn was_granted(&self, execution: ExecutionId) -> bool {
        self.granted.contains(&execution)
    }

    pub(super) fn starts(&self) -> &Starts {
        &self.starts
    }
}
