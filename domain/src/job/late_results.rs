//! Divergent logs and late results, which do not affect the outcome of a job. Each is recorded once
//! per execution, so that a runner cannot fill the event log with repeated calls.
use super::{Decision, ExecutionResult, Job, JobError, JobEvent, Outcome, SignedResult, State};
use crate::ids::ExecutionId;

impl Job {
    pub(super) fn record_divergence(&self, execution: ExecutionId, offset_bytes: u64) -> Decision {
        if self.diverged.contains(&execution) {
            return Ok(vec![]);
        }
        if !self.has_lost(execution) {
            self.fence(execution)?;
        }
        Ok(vec![JobEvent::LogDiverged { execution, offset_bytes }])
    }

    pub(super) fn record_late_result(
        &self,
        execution: ExecutionId,
        seq: u64,
        result: ExecutionResult,
        signed: Option<SignedResult>,
    ) -> Decision {
        if self.late.contains(&execution) {
            return Ok(vec![]);
        }
        if !self.has_lost(execution) {
            match self.fence(execution)? {
                // The runner has already sent its final report. A second final report is not a late
                // result.
                State::Ended { .. } if self.reports.last().is_some_and(JobEvent::is_end) => {
                    return Err(self.rejection());
                }
                State::Ended { .. } => {}
                State::NotCreated
                | State::Queued { .. }
                | State::Claimed(_)
                | State::Running(_)
                | State::OutcomeUnknown(_) => return Err(JobError::StillRunning),
            }
        }
        Ok(vec![result.into_late_event(execution, seq, signed)])
    }
}

impl ExecutionResult {
    fn into_late_event(
        self,
        execution: ExecutionId,
        seq: u64,
        signed: Option<SignedResult>,
    ) -> JobEvent {
        let (outcome, reason, detail, exit_code, signal, not_ended) = match self {
            ExecutionResult::Succeeded { exit_code, not_ended } => {
                (Outcome::Succeeded, None, None, exit_code, None, not_ended)
            }
            ExecutionResult::Failed { reason, detail, exit_code, signal, not_ended } => {
                (Outcome::Failed, Some(reason), Some(detail), exit_code, signal, not_ended)
            }
            ExecutionResult::Cancelled { not_ended, .. } => {
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
