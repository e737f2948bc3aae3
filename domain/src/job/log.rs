//! The log of an execution: finalized once, when nothing can be added to it.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Decision, Job, JobError, JobEvent, State};
use crate::{digest::Digest, ids::ExecutionId};

/// Length and digest of a finalized log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FinalizedLog {
    /// Execution of the log.
    pub execution: ExecutionId,
    /// Length of the log as the runner sent it, in bytes.
    pub length_bytes: u64,
    /// Digest of the log as the runner sent it.
    pub sha256: Digest,
    /// Number of output bytes that the log omits.
    pub omitted_bytes: u64,
    /// True if the server received the end of the log.
    pub complete: bool,
}

impl Job {
    /// Finalizes the log of an execution. A lost execution also has a log, which helps most to
    /// resolve its outcome.
    pub(super) fn finalize(&self, log: FinalizedLog) -> Decision {
        if !self.has_lost(log.execution) {
            match self.fence(log.execution)? {
                State::OutcomeUnknown(_) | State::Ended { .. } => {}
                State::Claimed(_) => return Err(JobError::NotStarted),
                State::Running(_) => return Err(JobError::StillRunning),
                State::NotCreated | State::Queued { .. } => return Err(self.refusal()),
            }
        }
        match self.logs.iter().find(|kept| kept.execution == log.execution) {
            None => Ok(vec![JobEvent::LogFinalized(log)]),
            Some(kept) if *kept == log => Ok(vec![]),
            Some(_) => Err(JobError::LogAlreadyFinalized),
        }
    }
}
