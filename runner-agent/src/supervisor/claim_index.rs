//! In-memory index of the journal for claims: a claim reads only the entries since the previous
//! claim.
use std::{collections::BTreeSet, io};

use domain::ids::ExecutionId;

use super::quarantine::UnstartedManifests;
use crate::journal::{Journal, JournalEvent, Position};

/// Largest number of granted executions in the index.
const MAX_GRANTED: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct ClaimIndex {
    read: Position,
    granted: BTreeSet<ExecutionId>,
    starts: UnstartedManifests,
}

impl ClaimIndex {
    /// Reads the new entries of the journal.
    pub(super) fn refresh(&mut self, journal: &Journal) -> io::Result<()> {
        for entry in journal.read_on(&mut self.read)? {
            self.starts.apply(&entry.event);
            if let JournalEvent::Claimed { execution, .. } = entry.event {
                self.granted.insert(execution);
            }
        }
        while self.granted.len() > MAX_GRANTED {
            // Ids begin with a timestamp, so this removes the oldest one.
            self.granted.pop_first();
        }
        Ok(())
    }

    /// Returns whether this execution was granted before. If so, a response that grants it is a
    /// replay.
    pub(super) fn was_granted(&self, execution: ExecutionId) -> bool {
        self.granted.contains(&execution)
    }

    pub(super) fn starts(&self) -> &UnstartedManifests {
        &self.starts
    }
}
