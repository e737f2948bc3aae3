//! Reasons to reject an enrolment command.

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EnrolmentError {
    #[error("enrolment token does not exist")]
    NotFound,
    #[error("enrolment token was already issued with other values")]
    AlreadyIssued,
    /// A token enrols one runner. A second identity key means a second runner.
    #[error("enrolment token was already used with another key: create a new token")]
    AlreadyUsed,
    #[error("enrolment token has expired: create a new token")]
    Expired,
    #[error("enrolment token was revoked")]
    Revoked,
}
