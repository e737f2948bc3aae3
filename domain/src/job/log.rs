//! Finalized logs. The log of an execution is finalized once, after the execution ended or was
//! declared lost.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Decision, Job, JobError, JobEvent, State};
use crate::{digest::Digest, ids::ExecutionId};

/// Length and digest of a finalized log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FinalizedLog {
    /// Execution that wrote the log.
    pub execution: ExecutionId,
    /// Length of the stored log in bytes.
    pub length_bytes: u64,
    /// Digest of the stored log.
    pub sha256: Digest,
    /// Number of output bytes that the runner omitted from the middle of the log.
    pub omitted_bytes: u64,
    /// True if the server received the complete log. False if the wait for the rest timed out.
    pub complete: bool,
}

impl Job {
    /// Finalizes the log of an execution. The log of a lost execution is also finalized, because a
    /// user may need it to resolve the outcome.
    pub(super) fn finalize(&self, log: FinalizedLog) -> Decision {
        if !self.has_lost(log.execution) {
            match self.fence(log.execution)? {
                State::OutcomeUnknown(_) | State::Ended { .. } => {}
                State::Claimed(_) => return Err(JobError::NotStarted),
                State::Running(_) => return Err(JobError::StillRunning),
                State::NotCreated | State::Queued { .. } => return Err(self.rejection()),
            }
        }
        match self.logs.iter().find(|existing| existing.execution == log.execution) {
            None => Ok(vec![JobEvent::LogFinalized(log)]),
            Some(existing) if *existing == log => Ok(vec![]),
            Some(_) => Err(JobError::LogAlreadyFinalized),
        }
    }
}
