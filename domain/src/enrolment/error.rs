//! Reasons to reject an enrolment command.

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EnrolmentError {
    #[error("enrolment token does not exist")]
    NotFound,
    #[error("cannot issue the enrolment token: the id belongs to another token; use a new id")]
    AlreadyIssued,
    /// A used token cannot be revoked, and cannot enrol a runner with another identity key.
    #[error(
        "cannot use or revoke the enrolment token: a runner has already enrolled with it; create a new token, or revoke \
         that runner"
    )]
    AlreadyUsed,
    /// Each offer is recorded.
    #[error(
        "cannot recover the install: the enrolment token has read the wrapped seeds {most} times; revoke it and create a \
         new token"
    )]
    TooManyOffers {
        /// Maximum number of offers for a token.
        most: u32,
    },
    #[error("cannot enrol: the enrolment token has expired; create a new token")]
    Expired,
    #[error("cannot enrol: the enrolment token was revoked; create a new token")]
    Revoked,
}
