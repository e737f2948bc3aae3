//! Reasons to reject an enrolment command.

/// Reason to reject an enrolment command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EnrolmentError {
    /// No enrolment token has this id.
    #[error("enrolment token does not exist")]
    NotFound,
    /// The id belongs to another token.
    #[error("enrolment token was already issued with other values")]
    AlreadyIssued,
    /// A token enrols one runner only.
    #[error("enrolment token was already used with another key: create a new token")]
    AlreadyUsed,
    /// The token was valid until its expiry time.
    #[error("enrolment token has expired: create a new token")]
    Expired,
    #[error("enrolment token was revoked")]
    Revoked,
}
