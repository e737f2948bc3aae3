//! Reasons to reject a job command.
use super::{Job, Outcome, State};
use crate::{decider::Timestamp, ids::ExecutionId};

/// Reason to reject a job command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JobError {
    /// No job has this id.
    #[error("job does not exist")]
    NotFound,
    /// A job needs at least one attempt.
    #[error("job needs at least one attempt")]
    NoAttempts,
    /// The id belongs to other work.
    #[error("job was already queued with other values")]
    AlreadyQueued,
    /// Only one execution can hold the job.
    #[error("job is already claimed by {by}")]
    AlreadyClaimed {
        /// Execution that holds the job.
        by: ExecutionId,
    },
    /// The execution lost the job or never held it.
    #[error("execution does not hold the job; the holder is {}", .held.map_or("none".into(), |id| id.to_string()))]
    Fenced {
        /// Execution that holds the job.
        held: Option<ExecutionId>,
    },
    /// The job must have started first.
    #[error("job has not started")]
    NotStarted,
    /// Work that has started may have had effects.
    #[error("job has already started, so its child process may have run")]
    AlreadyStarted,
    /// Another report has this sequence number.
    #[error("report {seq} was already recorded with other content")]
    SeqConflict {
        /// Sequence number.
        seq: u64,
    },
    /// A report before this one is missing.
    #[error("report is out of order: the next sequence number is {expected}")]
    SeqGap {
        /// Next sequence number.
        expected: u64,
    },
    /// Phases are for display, so their number is limited.
    #[error("too many phases: a job may enter {most}")]
    TooManyPhases {
        /// Maximum number of phases.
        most: usize,
    },
    /// Only some kinds of jobs report this.
    #[error("a job of this kind does not report {what}")]
    NotThisKind {
        /// Reported item.
        what: &'static str,
    },
    /// A job reports at most one plan, one artifact and one state.
    #[error("job has already reported {what}")]
    AlreadyReported {
        /// Reported item.
        what: &'static str,
    },
    /// Only the server sets this reason.
    #[error("a runner may not report this failure reason")]
    NotARunnersReason,
    /// A connected runner does not lose its job for lack of contact.
    #[error("runner is connected")]
    StillConnected,
    /// The deadline has not passed.
    #[error("deadline has not passed: the execution has until {deadline}")]
    DeadlineAhead {
        /// Time limit.
        deadline: Timestamp,
    },
    /// Work that changes something may still run on a disconnected runner.
    #[error("runner is disconnected, but its job may still run")]
    MayStillRun,
    /// The runner reports the outcome itself.
    #[error("nothing to resolve: the runner still has the job")]
    NothingToResolve,
    /// Only a principal may decide the outcome of a script.
    #[error("only a principal may resolve unsafe work")]
    OnlyAPrincipalMayResolve,
    /// A runner reports results. It may not resolve an unknown outcome.
    #[error("a runner may not resolve an unknown outcome")]
    ARunnerMayNotResolve,
    /// A runner may not cancel a job without a request.
    #[error("job has no cancel request")]
    CancelNotRequested,
    /// A job that is being cancelled is not retried.
    #[error("job is being cancelled and cannot be retried: resolve it as succeeded or failed")]
    Cancelling,
    /// The unknown outcome must be resolved first.
    #[error("outcome is unknown: wait for the runner or resolve it")]
    OutcomeUnknown,
    /// The timeout belongs to an earlier attempt.
    #[error("timeout is outdated: the job waits for attempt {attempt}")]
    AnotherAttempt {
        /// Attempt that waits for a runner.
        attempt: u32,
    },
    /// A log is finalized when nothing can be added.
    #[error("log cannot be finalized: the execution still runs")]
    StillRunning,
    /// Length and digest of a finalized log do not change.
    #[error("log is already finalized with another length or digest")]
    LogAlreadyFinalized,
    /// The outcome is final.
    #[error("job has already ended: {outcome}")]
    AlreadyEnded { outcome: Outcome },
}

impl Job {
    /// Returns the state if the execution holds the job, or held it when the job ended.
    pub(super) fn fence(&self, execution: ExecutionId) -> Result<&State, JobError> {
        let held = match &self.state {
            State::NotCreated => return Err(self.refusal()),
            State::Queued { .. } => None,
            State::Claimed(by) | State::Running(by) | State::OutcomeUnknown(by) => Some(by.id),
            State::Ended { execution, .. } => *execution,
        };
        if held == Some(execution) { Ok(&self.state) } else { Err(JobError::Fenced { held }) }
    }

    /// Returns the error for a command that this state does not allow.
    pub(super) fn refusal(&self) -> JobError {
        match &self.state {
            State::NotCreated => JobError::NotFound,
            State::Queued { .. } => JobError::Fenced { held: None },
            State::Claimed(by) | State::Running(by) => JobError::AlreadyClaimed { by: by.id },
            State::OutcomeUnknown(_) => JobError::OutcomeUnknown,
            State::Ended { outcome, .. } => JobError::AlreadyEnded { outcome: *outcome },
        }
    }
}
