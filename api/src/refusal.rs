//! What the domain refuses, as problems with a stable code: one exhaustive match per aggregate.
use domain::{install::InstallError, job::JobError, run::RunError, run::plan::NoSuchComponent};
use event_log::{AppendError, LogError};

use crate::problem::{Code, Problem};

impl From<RunError> for Problem {
    fn from(error: RunError) -> Problem {
        let code = match &error {
            RunError::NotFound | RunError::NoSuchStep => Code::NotFound,
            RunError::NoReason | RunError::NoSteps => Code::Invalid,
            RunError::AnotherPlan { .. } => Code::ApprovalStale,
            RunError::AlreadyRequested
            | RunError::StepsOutOfOrder
            | RunError::NotReady
            | RunError::NotWaitingForThat
            | RunError::NotItsJob
            | RunError::NothingToApprove
            | RunError::NotFailed
            | RunError::Cancelling
            | RunError::AlreadyEnded { .. } => Code::Refused,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<InstallError> for Problem {
    fn from(error: InstallError) -> Problem {
        let code = match &error {
            InstallError::NotFound => Code::NotFound,
            InstallError::Excluded { .. } => Code::RunExcluded,
            InstallError::AlreadyCreated
            | InstallError::HasARunner
            | InstallError::NoRunner
            | InstallError::NotAdmitted
            | InstallError::Held { .. }
            | InstallError::NotHolding => Code::Refused,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<JobError> for Problem {
    fn from(error: JobError) -> Problem {
        let code = match &error {
            JobError::NotFound => Code::NotFound,
            JobError::NoAttempts
            | JobError::TooManyPhases { .. }
            | JobError::NotThisKind { .. }
            | JobError::NotARunnersReason => Code::Invalid,
            JobError::AlreadyClaimed { .. } => Code::ClaimedByOther,
            JobError::Fenced { .. } => Code::FencedOut,
            JobError::SeqConflict { .. } => Code::SeqConflict,
            JobError::SeqGap { .. } => Code::SeqGap,
            JobError::OnlyAPrincipalMayResolve | JobError::ARunnerMayNotResolve => Code::Forbidden,
            JobError::AlreadyQueued
            | JobError::NotStarted
            | JobError::AlreadyStarted
            | JobError::AlreadyReported { .. }
            | JobError::StillConnected
            | JobError::DeadlineAhead { .. }
            | JobError::UnreachableIsNotDead
            | JobError::NotInDoubt
            | JobError::CancelNotRequested
            | JobError::OutcomeUnknown
            | JobError::AnotherAttempt { .. }
            | JobError::StillRunning
            | JobError::AlreadySealed
            | JobError::AlreadyEnded { .. } => Code::Refused,
        };
        let problem = Problem::new(code, error.to_string());
        match error {
            JobError::SeqGap { expected } => problem.with("expected", expected),
            _ => problem,
        }
    }
}

impl From<NoSuchComponent> for Problem {
    fn from(error: NoSuchComponent) -> Problem {
        Problem::new(Code::NotFound, error.to_string())
    }
}

impl From<AppendError> for Problem {
    fn from(error: AppendError) -> Problem {
        match error {
            AppendError::Conflict { .. } => Problem::new(Code::Conflict, error.to_string()),
            AppendError::KeyUsed { .. } => Problem::new(Code::Conflict, error.to_string()),
            AppendError::KeyMismatch => Problem::new(Code::IdempotencyMismatch, error.to_string()),
            AppendError::Full { retry_after } => {
                let seconds = retry_after.as_secs().max(1);
                Problem::new(Code::Busy, error.to_string()).retry_after(seconds)
            }
            AppendError::TooLarge { .. } => Problem::new(Code::TooLarge, error.to_string()),
            AppendError::Layout { .. } => {
                let detail = format!("{error}; start the program version that migrated it");
                Problem::new(Code::Unavailable, detail)
            }
            AppendError::Closed => Problem::new(Code::Stopping, error.to_string()).retry_after(2),
            AppendError::SessionMoved { .. } => {
                Problem::new(Code::SessionSuperseded, error.to_string())
            }
            AppendError::ConsumerMoved { .. } | AppendError::Invalid(_) => Problem::internal(error),
            AppendError::Database(reason) => {
                tracing::warn!(reason = %reason, "An append did not reach the database: {reason}");
                let detail = "the database does not answer; try again";
                Problem::new(Code::Unavailable, detail).retry_after(2)
            }
        }
    }
}

impl From<LogError> for Problem {
    fn from(error: LogError) -> Problem {
        match error {
            LogError::Database(error) => error.into(),
            LogError::Proof(error) => Problem::new(Code::Invalid, error.to_string()),
            LogError::NoLog
            | LogError::Encoding(_)
            | LogError::Layout { .. }
            | LogError::Damaged { .. } => Problem::internal(error),
        }
    }
}
