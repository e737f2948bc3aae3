//! Why an enrolment says no, in the words of the business.

/// Why an enrolment says no.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EnrolmentError {
    /// No such token was given out.
    #[error("enrolment token does not exist")]
    NotFound,
    /// The same id for another token.
    #[error("enrolment token is already issued, for something else")]
    AlreadyIssued,
    /// One runner, once.
    #[error("enrolment token is already used by another key")]
    AlreadyUsed,
    /// It lives an hour.
    #[error("enrolment token has expired")]
    Expired,
    /// Somebody took it back.
    #[error("enrolment token was revoked")]
    Revoked,
}
