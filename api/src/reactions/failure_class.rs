//! Classification of the problems of reactions.
use crate::problem::Code;

/// Classes of problems that a reaction can return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureClass {
    /// An aggregate rejected the command: the event is obsolete, or another change came first.
    Obsolete,
    /// The reaction is impossible with the given data, now and later.
    Impossible,
    /// Temporary, for example because the database is unreachable or concurrent writers won.
    Transient,
    /// An internal error or corrupt data. A fix or a repair may resolve it.
    Internal,
}

pub(super) fn classify(code: Code) -> FailureClass {
    match code {
        Code::Rejected
        | Code::NoChanges
        | Code::AlreadyFinished
        | Code::NoRunner
        | Code::Deprovisioned
        | Code::NameTaken
        | Code::RunInProgress
        | Code::ApprovalStale
        | Code::ClaimedByOther
        | Code::Fenced
        | Code::RunnerRevoked
        | Code::Cancelled
        | Code::Expired => FailureClass::Obsolete,
        Code::NotFound | Code::TooLarge | Code::StatementInvalid | Code::Invalid => {
            FailureClass::Impossible
        }
        Code::Conflict
        | Code::Unavailable
        | Code::RegistryUnavailable
        | Code::Busy
        | Code::ShuttingDown
        | Code::ProjectionLag => FailureClass::Transient,
        // The operator may restore the archive. Until then the event is a dead letter, and the
        // other events continue.
        Code::ArchiveMissing => FailureClass::Internal,
        // Except for `internal`, these codes are responses to API callers, and a reaction should
        // not encounter them.
        Code::Internal
        | Code::LogStale
        | Code::CallerUnreadable
        | Code::BadRequest
        | Code::InvalidJson
        | Code::DigestMismatch
        | Code::InvalidCursor
        | Code::TokenMissing
        | Code::TokenUnknown
        | Code::TokenExpired
        | Code::TokenRevoked
        | Code::TokenTypeMismatch
        | Code::AssertionInvalid
        | Code::AssertionReplayed
        | Code::ClockSkew
        | Code::ExecutionSuperseded
        | Code::Forbidden
        | Code::Erased
        | Code::NotOffered
        | Code::MethodNotAllowed
        | Code::EnrolmentRedeemed
        | Code::SessionSuperseded
        | Code::SessionUnknown
        | Code::SessionJournalRequired
        | Code::StateConflict
        | Code::StateInUse
        | Code::StateFenced
        | Code::BodyIncomplete
        | Code::UnknownComponent
        | Code::StateQuotaExceeded
        | Code::SeqGap
        | Code::SeqConflict
        | Code::LogDivergence
        | Code::LogMismatch
        | Code::UnsupportedMediaType
        | Code::LogGap
        | Code::RangeNotSatisfiable
        | Code::IdempotencyMismatch
        | Code::ProtocolUnsupported
        | Code::RateLimited
        | Code::UploadQuotaExceeded
        | Code::LogQuotaExceeded => FailureClass::Internal,
    }
}
