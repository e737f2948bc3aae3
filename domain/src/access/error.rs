//! Why access says no, in the words of the business.
use super::PrincipalKind;

/// Why access says no.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AccessError {
    /// Nobody of this id is known.
    #[error("principal does not exist")]
    NotFound,
    /// The same id for somebody else.
    #[error("principal is already known, as a {kind}")]
    AlreadyAdded {
        /// What it is.
        kind: PrincipalKind,
    },
    /// The same id for another token.
    #[error("token is already issued, with other values")]
    AlreadyIssued,
    /// It would never be heard.
    #[error("token would expire before it is issued")]
    ExpiresInThePast,
    /// Not one of this principal's.
    #[error("principal has no such token")]
    NoSuchToken,
}
