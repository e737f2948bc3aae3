//! The log of an execution: finalized once, when nothing can be added to it.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Decision, Job, JobError, JobEvent, State};
use crate::{digest::Digest, ids::ExecutionId};

/// What a log is, for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FinalizedLog {
    /// Whose log.
    pub execution: ExecutionId,
    /// As sent.
    pub length_bytes: u64,
    /// Of the bytes as sent.
    pub sha256: Digest,
    /// Written by the work, but not kept.
    pub omitted_bytes: u64,
    /// Whether its end is there.
    pub complete: bool,
}

impl Job {
    /// A lost execution still has a log, and it is worth the most to whoever has to resolve it.
    pub(super) fn finalize(&self, log: FinalizedLog) -> Decision {
        if !self.has_lost(log.execution) {
            match self.fence(log.execution)? {
                State::OutcomeUnknown(_) | State::Ended { .. } => {}
                State::Claimed(_) => return Err(JobError::NotStarted),
                State::Running(_) => return Err(JobError::StillRunning),
                State::Unborn | State::Queued { .. } => return Err(self.refusal()),
            }
        }
        match self.logs.iter().find(|kept| kept.execution == log.execution) {
            None => Ok(vec![JobEvent::LogFinalized(log)]),
            Some(kept) if *kept == log => Ok(vec![]),
            Some(_) => Err(JobError::LogAlreadyFinalized),
        }
    }
}
