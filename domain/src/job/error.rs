use super::{Job, Outcome, State};
use crate::{decider::Timestamp, ids::ExecutionId};

/// Reason to reject a job command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JobError {
    #[error("job does not exist")]
    NotFound,
    #[error("cannot queue the job: it needs at least one attempt")]
    NoAttempts,
    #[error("cannot queue the job: the id belongs to other work; use a new id")]
    AlreadyQueued,
    #[error("cannot change the job: {by} has already claimed it")]
    AlreadyClaimed { by: ExecutionId },
    /// The execution lost the job or never held it.
    #[error("cannot change the job: this execution does not hold it; the holder is {}", .held.map_or("none".into(), |id| id.to_string()))]
    Fenced {
        /// Execution that holds the job, or held it when the job ended.
        held: Option<ExecutionId>,
    },
    #[error("cannot change the job: the execution has not started; report its start first")]
    NotStarted,
    #[error(
        "cannot declare the execution lost: it has already started, so its child process may have run"
    )]
    AlreadyStarted,
    #[error("cannot record report {seq}: a different report has this number")]
    SeqConflict { seq: u64 },
    #[error("cannot record the report: an earlier one is missing; send report {expected} first")]
    SeqGap { expected: u64 },
    /// Phases are for display only, so a limit protects the log from a faulty plugin.
    #[error("cannot record the phase: the limit is {most} phases; report fewer phases")]
    TooManyPhases { most: usize },
    #[error("cannot record the report: a job of this kind does not report {what}")]
    NotThisKind { what: &'static str },
    /// An execution reports its start once, and at most one plan, one artifact and one state.
    #[error("cannot record the report: the execution has already reported {what}")]
    AlreadyReported { what: &'static str },
    /// Some failure reasons are reserved for the server.
    #[error(
        "cannot record the report: only the server sets this failure reason; report another reason"
    )]
    ReasonNotReportable,
    /// A job is lost for lack of contact only if it was recorded as disconnected.
    #[error("cannot declare the execution lost: its runner is connected")]
    StillConnected,
    #[error(
        "cannot declare the execution lost: its deadline {deadline} has not passed; wait until then"
    )]
    DeadlineNotPassed { deadline: Timestamp },
    #[error("cannot declare the execution lost: the job may still run on the disconnected runner")]
    MayStillRun,
    /// The execution has no unknown outcome: its runner still reports on it.
    #[error(
        "cannot resolve the job: the runner still reports on it; wait for the result or cancel the job"
    )]
    NothingToResolve,
    /// The outcome of unsafe work, such as a script, needs the decision of a user.
    #[error("cannot resolve the job: only a principal may resolve unsafe work")]
    PrincipalRequired,
    #[error("cannot resolve the job: a runner may not resolve an unknown outcome")]
    RunnerMayNotResolve,
    #[error("cannot record the cancellation: the job has no cancel request")]
    CancelNotRequested,
    #[error("cannot retry the job: it is being cancelled; resolve it as succeeded or failed")]
    Cancelling,
    #[error(
        "cannot change the job: its outcome is unknown; wait for the runner, or resolve the job"
    )]
    OutcomeUnknown,
    /// The queue timeout belongs to an earlier attempt.
    #[error("cannot expire the attempt: attempt {attempt} waits for a runner now")]
    AnotherAttempt {
        /// Number of the attempt that waits for a runner.
        attempt: u32,
    },
    /// The runner can still append to the log.
    #[error("cannot change the job: the execution is still running; wait for its end")]
    StillRunning,
    /// Length and digest of a finalized log never change.
    #[error("cannot finalize the log: it is already final with another length or digest")]
    LogAlreadyFinalized,
    #[error("cannot change the job: it has already ended: {outcome}")]
    AlreadyEnded { outcome: Outcome },
}

impl Job {
    /// Returns the state if the execution holds the job, or held it when the job ended.
    pub(super) fn fence(&self, execution: ExecutionId) -> Result<&State, JobError> {
        let held = match &self.state {
            State::NotCreated => return Err(self.rejection()),
            State::Queued { .. } => None,
            State::Claimed(by) | State::Running(by) | State::OutcomeUnknown(by) => Some(by.id),
            State::Ended { execution, .. } => *execution,
        };
        if held == Some(execution) { Ok(&self.state) } else { Err(JobError::Fenced { held }) }
    }

    /// Returns the error for a command that this state does not allow.
    pub(super) fn rejection(&self) -> JobError {
        match &self.state {
            State::NotCreated => JobError::NotFound,
            State::Queued { .. } => JobError::Fenced { held: None },
            State::Claimed(by) | State::Running(by) => JobError::AlreadyClaimed { by: by.id },
            State::OutcomeUnknown(_) => JobError::OutcomeUnknown,
            State::Ended { outcome, .. } => JobError::AlreadyEnded { outcome: *outcome },
        }
    }
}
