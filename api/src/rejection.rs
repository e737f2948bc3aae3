//! Converts rejections of the domain to problems with stable codes: one exhaustive match per
//! aggregate.
use domain::{
    access::AccessError,
    app::AppError,
    build::BuildError,
    component::ComponentError,
    enrolment::EnrolmentError,
    install::InstallError,
    job::JobError,
    name::NameError,
    plugin::PluginError,
    run::{RunError, plan::NoSuchComponent},
    runner::RunnerError,
    subject::SubjectError,
    webhook::WebhookError,
};
use event_log::{AppendError, LogError, blob::BlobError};

use crate::problem::{Code, Problem, is_unavailable};

impl From<RunError> for Problem {
    fn from(error: RunError) -> Problem {
        let code = match &error {
            RunError::NotFound | RunError::NoSuchStep => Code::NotFound,
            RunError::NoReason | RunError::NoSteps | RunError::NothingToPlan { .. } => {
                Code::Invalid
            }
            RunError::AnotherPlan { .. } | RunError::ApprovalExpired { .. } => Code::ApprovalStale,
            RunError::AlreadyRequested
            | RunError::StepsOutOfOrder
            | RunError::NotReady
            | RunError::WrongPreflightState
            | RunError::PreflightNotPassed
            | RunError::PreflightFailed
            | RunError::PlansMissing
            | RunError::WrongStepState
            | RunError::WrongJob
            | RunError::NothingToApprove
            | RunError::NotFailed
            | RunError::NotAProvision
            | RunError::Cancelling => Code::Rejected,
            RunError::AlreadyEnded { .. } => Code::AlreadyFinished,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<InstallError> for Problem {
    fn from(error: InstallError) -> Problem {
        let code = match &error {
            InstallError::NotFound => Code::NotFound,
            InstallError::Excluded { .. } | InstallError::DeployInProgress { .. } => {
                Code::RunInProgress
            }
            InstallError::NoRunner => Code::NoRunner,
            InstallError::Deprovisioned => Code::Deprovisioned,
            InstallError::AlreadyCreated
            | InstallError::HasRunner { .. }
            | InstallError::AlreadyRecovered { .. }
            | InstallError::HasResources
            | InstallError::NotFirstProvision
            | InstallError::NoSuchComponent { .. }
            | InstallError::InvalidLineage { .. }
            | InstallError::NotAdmitted
            | InstallError::Held { .. }
            | InstallError::StateAwaited { .. }
            | InstallError::ResourceNotHeld => Code::Rejected,
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
            | JobError::ReasonNotReportable => Code::Invalid,
            JobError::AlreadyClaimed { .. } => Code::ClaimedByOther,
            JobError::Fenced { .. } => Code::Fenced,
            JobError::SeqConflict { .. } => Code::SeqConflict,
            JobError::SeqGap { .. } => Code::SeqGap,
            JobError::PrincipalRequired | JobError::RunnerMayNotResolve => Code::Forbidden,
            JobError::AlreadyQueued
            | JobError::NotStarted
            | JobError::AlreadyStarted
            | JobError::AlreadyReported { .. }
            | JobError::StillConnected
            | JobError::DeadlineNotPassed { .. }
            | JobError::MayStillRun
            | JobError::NothingToResolve
            | JobError::Cancelling
            | JobError::CancelNotRequested
            | JobError::OutcomeUnknown
            | JobError::AnotherAttempt { .. }
            | JobError::StillRunning
            | JobError::LogAlreadyFinalized => Code::Rejected,
            JobError::AlreadyEnded { .. } => Code::AlreadyFinished,
        };
        let problem = Problem::new(code, error.to_string());
        let JobError::SeqGap { expected } = error else { return problem };
        problem.with("expected", expected)
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
            // A retry may reach a server with the migrated schema version, if several servers share
            // one address.
            AppendError::Layout { .. } => {
                Problem::new(Code::Unavailable, error.to_string()).retry_after(1)
            }
            AppendError::Closed => {
                Problem::new(Code::ShuttingDown, error.to_string()).retry_after(2)
            }
            AppendError::SessionMoved { .. } => {
                Problem::new(Code::SessionSuperseded, error.to_string())
            }
            // Another server runs the policies now. The next attempt detects that.
            AppendError::ConsumerMoved { .. } => Problem::new(Code::Conflict, error.to_string()),
            AppendError::Invalid(_) | AppendError::NotEncrypted(_) => Problem::internal(error),
            // The database or stored data will reject this again, and endless retries would block
            // other commits.
            AppendError::Database(reason) if !is_unavailable(&reason) => Problem::internal(reason),
            AppendError::Database(reason) => {
                tracing::warn!(error = %reason, "Cannot append: the database is unavailable");
                let detail = "cannot append: the database is unavailable; try again";
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
            LogError::Format(_) => {
                Problem::new(Code::Unavailable, error.to_string()).retry_after(1)
            }
            // The caller sees this error, because it is no secret and only the operator can fix it.
            error @ LogError::Archived { .. } => {
                tracing::error!(error = %error, "Cannot read archived events");
                Problem::new(Code::ArchiveMissing, error.to_string())
            }
            LogError::NoLog
            | LogError::Encoding(_)
            | LogError::WrappingKey(_)
            | LogError::Damaged { .. } => Problem::internal(error),
        }
    }
}

impl From<BlobError> for Problem {
    fn from(error: BlobError) -> Problem {
        match error {
            BlobError::Database(error) => error.into(),
            BlobError::Damaged(_) | BlobError::Digest(_) => Problem::internal(error),
        }
    }
}

impl From<SubjectError> for Problem {
    fn from(error: SubjectError) -> Problem {
        let code = match &error {
            SubjectError::NoReason => Code::Invalid,
            SubjectError::NotShredded => Code::Rejected,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<ComponentError> for Problem {
    fn from(error: ComponentError) -> Problem {
        let code = match &error {
            ComponentError::NotFound => Code::NotFound,
            ComponentError::AnotherComponent { .. } | ComponentError::VersionNotLater { .. } => {
                Code::Rejected
            }
        };
        Problem::new(code, error.to_string())
    }
}

impl From<AppError> for Problem {
    fn from(error: AppError) -> Problem {
        let code = match &error {
            AppError::NotFound | AppError::NoSource { .. } => Code::NotFound,
            AppError::DuplicateName { .. } => Code::Invalid,
            AppError::AlreadyCreated { .. }
            | AppError::AnotherComponent { .. }
            | AppError::ResolveAlreadyQueued { .. }
            | AppError::AlreadyResolved { .. }
            | AppError::NotResolvable { .. } => Code::Rejected,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<WebhookError> for Problem {
    fn from(error: WebhookError) -> Problem {
        let code = match &error {
            WebhookError::NoTopics => Code::Invalid,
            WebhookError::Missing => Code::NotFound,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<PluginError> for Problem {
    fn from(error: PluginError) -> Problem {
        let PluginError::OtherContent { .. } = &error;
        Problem::new(Code::Rejected, error.to_string())
    }
}

impl From<BuildError> for Problem {
    fn from(error: BuildError) -> Problem {
        let code = match &error {
            BuildError::NotFound => Code::NotFound,
            BuildError::AlreadyRequested
            | BuildError::JobAlreadyQueued { .. }
            | BuildError::NoJob
            | BuildError::AlreadySucceeded
            | BuildError::AlreadyFailed => Code::Rejected,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Problem {
        match &error {
            NameError::Taken { .. } => Problem::new(Code::NameTaken, error.to_string()),
        }
    }
}

impl From<EnrolmentError> for Problem {
    fn from(error: EnrolmentError) -> Problem {
        let code = match &error {
            EnrolmentError::NotFound => Code::TokenUnknown,
            EnrolmentError::Expired => Code::TokenExpired,
            EnrolmentError::Revoked => Code::TokenRevoked,
            EnrolmentError::AlreadyUsed => Code::EnrolmentRedeemed,
            EnrolmentError::AlreadyIssued | EnrolmentError::TooManyOffers { .. } => Code::Rejected,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<AccessError> for Problem {
    fn from(error: AccessError) -> Problem {
        let code = match &error {
            AccessError::NotFound | AccessError::NoSuchToken => Code::NotFound,
            AccessError::ExpiresInThePast => Code::Invalid,
            AccessError::AlreadyAdded { .. } | AccessError::AlreadyIssued => Code::Rejected,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<RunnerError> for Problem {
    fn from(error: RunnerError) -> Problem {
        let code = match &error {
            RunnerError::NotFound => Code::NotFound,
            RunnerError::Revoked => Code::RunnerRevoked,
            RunnerError::InstallRequired | RunnerError::InstallNotAllowed => Code::Invalid,
            RunnerError::AlreadyEnrolled
            | RunnerError::KeyWasReplaced
            | RunnerError::NoFormerKeys
            | RunnerError::KeysWereReplaced
            | RunnerError::NotChosen { .. }
            | RunnerError::InstallKeysDiffer
            | RunnerError::GenerationNotLater { .. } => Code::Rejected,
        };
        Problem::new(code, error.to_string())
    }
}
