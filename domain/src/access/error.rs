use super::PrincipalKind;

/// Reason to reject an access command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AccessError {
    #[error("principal does not exist")]
    NotFound,
    #[error("principal already exists as a {kind}")]
    AlreadyAdded { kind: PrincipalKind },
    #[error("token was already issued with other values")]
    AlreadyIssued,
    #[error("token would expire before it is issued: use a later expiry time")]
    ExpiresInThePast,
    #[error("principal has no such token")]
    NoSuchToken,
}
