//! What a runner says that changes nothing, and is worth a line of the log: once for each execution, so that a
//! runner that says it again and again fills nothing.
use super::{Decision, Ending, Job, JobError, JobEvent, Outcome, Signed, State};
use crate::ids::ExecutionId;

impl Job {
    pub(super) fn note_divergence(&self, execution: ExecutionId, offset_bytes: u64) -> Decision {
        if self.diverged.contains(&execution) {
            return Ok(vec![]);
        }
        if !self.has_lost(execution) {
            self.fence(execution)?;
        }
        Ok(vec![JobEvent::LogDiverged { execution, offset_bytes }])
    }

    pub(super) fn note_late(
        &self,
        execution: ExecutionId,
        seq: u64,
        ending: Ending,
        signed: Option<Signed>,
    ) -> Decision {
        if self.late.contains(&execution) {
            return Ok(vec![]);
        }
        if !self.has_lost(execution) {
            match self.fence(execution)? {
                // It has said its last word; what it says now is another one.
                State::Ended { .. } if self.heard.last().is_some_and(JobEvent::is_end) => {
                    return Err(self.refusal());
                }
                State::Ended { .. } => {}
                State::Unborn
                | State::Queued { .. }
                | State::Claimed(_)
                | State::Running(_)
                | State::OutcomeUnknown(_) => return Err(JobError::StillRunning),
            }
        }
        Ok(vec![ending.late(execution, seq, signed)])
    }
}

impl Ending {
    fn late(self, execution: ExecutionId, seq: u64, signed: Option<Signed>) -> JobEvent {
        let (outcome, reason, detail, exit_code, signal, not_ended) = match self {
            Ending::Succeeded { exit_code, not_ended } => {
                (Outcome::Succeeded, None, None, exit_code, None, not_ended)
            }
            Ending::Failed { reason, detail, exit_code, signal, not_ended } => {
                (Outcome::Failed, Some(reason), Some(detail), exit_code, signal, not_ended)
            }
            Ending::Cancelled { not_ended, .. } => {
                (Outcome::Cancelled, None, None, None, None, not_ended)
            }
        };
        JobEvent::LateResultReported {
            execution,
            seq,
            outcome,
            reason,
            detail,
            exit_code,
            signal,
            signed,
            not_ended,
        }
    }
}
