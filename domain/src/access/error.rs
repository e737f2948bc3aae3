//! Reasons to reject an access command.
use super::PrincipalKind;

/// Reason to reject an access command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AccessError {
    /// No principal has this id.
    #[error("principal does not exist")]
    NotFound,
    /// The id belongs to a principal of another kind.
    #[error("principal already exists as a {kind}")]
    AlreadyAdded {
        /// Kind of the existing principal.
        kind: PrincipalKind,
    },
    /// The id belongs to another token.
    #[error("token was already issued with other values")]
    AlreadyIssued,
    /// The token would never be valid.
    #[error("token would expire before it is issued: use a later expiry time")]
    ExpiresInThePast,
    /// The token does not belong to this principal.
    #[error("principal has no such token")]
    NoSuchToken,
}
