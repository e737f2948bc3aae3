//! Why a job says no, in the words of the business.
use super::{Job, Outcome, State};
use crate::{decider::Timestamp, ids::ExecutionId};

/// Why a job says no.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JobError {
    /// Nothing was queued under this id.
    #[error("job does not exist")]
    NotFound,
    /// Work that may never be tried is no work.
    #[error("job needs at least one attempt")]
    NoAttempts,
    /// The same id for other work.
    #[error("job is already queued, as something else")]
    AlreadyQueued,
    /// One claim, one winner.
    #[error("job is already claimed by {by}")]
    AlreadyClaimed {
        /// The winner.
        by: ExecutionId,
    },
    /// A late word of an execution that lost the job, or a word of a stranger.
    #[error("execution does not hold the job; {} does", .held.map_or("none".into(), |id| id.to_string()))]
    Fenced {
        /// Who does.
        held: Option<ExecutionId>,
    },
    /// First it must start.
    #[error("job has not started")]
    NotStarted,
    /// What started may have done something.
    #[error("job has already started, so it may have spawned")]
    AlreadyStarted,
    /// This place among the reports holds another report.
    #[error("report {seq} was already given, and said something else")]
    SeqConflict {
        /// The place.
        seq: u64,
    },
    /// A report before this one is missing.
    #[error("report {expected} comes next")]
    SeqGap {
        /// The next place.
        expected: u64,
    },
    /// Phases are for people; nobody reads hundreds.
    #[error("job has entered {most} phases, which is the most that are kept")]
    TooManyPhases {
        /// How many are kept.
        most: usize,
    },
    /// Only some kinds of work make this.
    #[error("a job of this kind does not report {what}")]
    NotThisKind {
        /// What was reported.
        what: &'static str,
    },
    /// An approval is about one plan, a build makes one artifact.
    #[error("job has already reported {what}")]
    AlreadyReported {
        /// What was reported.
        what: &'static str,
    },
    /// Some reasons are the server's.
    #[error("a runner cannot give this reason for a failure")]
    NotARunnersReason,
    /// It still calls.
    #[error("runner is connected")]
    StillConnected,
    /// There is time left.
    #[error("execution has until {deadline}")]
    DeadlineAhead {
        /// The end of it.
        deadline: Timestamp,
    },
    /// Work that changes something may still be going on.
    #[error("runner is unreachable, which does not mean it is dead")]
    UnreachableIsNotDead,
    /// Its runner will say.
    #[error("job is still with its runner, there is nothing to resolve")]
    NotInDoubt,
    /// A rule must not decide what became of a script.
    #[error("only a principal may resolve unsafe work")]
    OnlyAPrincipalMayResolve,
    /// A runner reports; it does not judge its own doubt.
    #[error("a runner may not resolve what it cannot report")]
    ARunnerMayNotResolve,
    /// A runner does not cancel by itself.
    #[error("nobody asked to cancel this job")]
    CancelNotRequested,
    /// What is to end is not begun again.
    #[error("the job is to be cancelled: it succeeded or it failed, and is not tried again")]
    Cancelling,
    /// Doubt comes first.
    #[error("outcome is unknown until its runner reports or somebody decides")]
    OutcomeUnknown,
    /// A timer of an earlier attempt.
    #[error("job waits for attempt {attempt}")]
    AnotherAttempt {
        /// The attempt that is waited for.
        attempt: u32,
    },
    /// A log is finalized when nothing can be added.
    #[error("execution still runs, and its log with it")]
    StillRunning,
    /// Length and digest of a finalized log do not change.
    #[error("log is already finalized with another length or digest")]
    LogAlreadyFinalized,
    /// An outcome never changes.
    #[error("job has already ended: {outcome}")]
    AlreadyEnded {
        /// How.
        outcome: Outcome,
    },
}

impl Job {
    /// The state, shown only to the execution that holds the job, or held it when it ended.
    pub(super) fn fence(&self, execution: ExecutionId) -> Result<&State, JobError> {
        let held = match &self.state {
            State::Unborn => return Err(self.refusal()),
            State::Queued { .. } => None,
            State::Claimed(by) | State::Running(by) | State::OutcomeUnknown(by) => Some(by.id),
            State::Ended { execution, .. } => *execution,
        };
        if held == Some(execution) { Ok(&self.state) } else { Err(JobError::Fenced { held }) }
    }

    /// What this state says to a command it has no use for.
    pub(super) fn refusal(&self) -> JobError {
        match &self.state {
            State::Unborn => JobError::NotFound,
            State::Queued { .. } => JobError::Fenced { held: None },
            State::Claimed(by) | State::Running(by) => JobError::AlreadyClaimed { by: by.id },
            State::OutcomeUnknown(_) => JobError::OutcomeUnknown,
            State::Ended { outcome, .. } => JobError::AlreadyEnded { outcome: *outcome },
        }
    }
}
