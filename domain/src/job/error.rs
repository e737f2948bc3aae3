use super::{Job, Outcome, State};
use crate::{decider::Timestamp, ids::ExecutionId};

/// Reason to reject a job command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JobError {
    #[error("job does not exist")]
    NotFound,
    #[error("job needs at least one attempt")]
    NoAttempts,
    #[error("job was already queued with other values")]
    AlreadyQueued,
    #[error("job is already claimed by {by}")]
    AlreadyClaimed { by: ExecutionId },
    /// The execution lost the job or never held it.
    #[error("execution does not hold the job; the holder is {}", .held.map_or("none".into(), |id| id.to_string()))]
    Fenced {
        /// Execution that holds the job, or held it when the job ended.
        held: Option<ExecutionId>,
    },
    #[error("job has not started")]
    NotStarted,
    #[error("job has already started, so its child process may have run")]
    AlreadyStarted,
    #[error("report {seq} was already recorded with other content")]
    SeqConflict { seq: u64 },
    #[error("report is out of order: the next sequence number is {expected}")]
    SeqGap { expected: u64 },
    /// Phases are for display only, so a limit protects the log from a faulty plugin.
    #[error("too many phases: a job may enter {most}")]
    TooManyPhases { most: usize },
    #[error("a job of this kind does not report {what}")]
    NotThisKind { what: &'static str },
    /// An execution reports at most one plan, one artifact and one state.
    #[error("job has already reported {what}")]
    AlreadyReported { what: &'static str },
    /// Some failure reasons are reserved for the server.
    #[error("a runner may not report this failure reason")]
    NotARunnersReason,
    /// A job is lost for lack of contact only if it was recorded as disconnected.
    #[error("runner is connected")]
    StillConnected,
    #[error("deadline has not passed: the execution has until {deadline}")]
    DeadlineAhead { deadline: Timestamp },
    #[error("runner is disconnected, but its job may still run")]
    MayStillRun,
    /// The execution has no unknown outcome: its runner still reports on it.
    #[error("nothing to resolve: the runner still has the job")]
    NothingToResolve,
    /// The outcome of unsafe work, such as a script, needs the decision of a user.
    #[error("only a principal may resolve unsafe work")]
    OnlyAPrincipalMayResolve,
    #[error("a runner may not resolve an unknown outcome")]
    ARunnerMayNotResolve,
    #[error("job has no cancel request")]
    CancelNotRequested,
    #[error("job is being cancelled and cannot be retried: resolve it as succeeded or failed")]
    Cancelling,
    #[error("outcome is unknown: wait for the runner or resolve it")]
    OutcomeUnknown,
    /// The queue timeout belongs to an earlier attempt.
    #[error("timeout is outdated: the job waits for attempt {attempt}")]
    AnotherAttempt {
        /// Number of the attempt that waits for a runner.
        attempt: u32,
    },
    /// The runner can still append to the log.
    #[error("log cannot be finalized: the execution still runs")]
    StillRunning,
    /// Length and digest of a finalized log never change.
    #[error("log is already finalized with another length or digest")]
    LogAlreadyFinalized,
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
