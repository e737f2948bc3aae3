use super::PrincipalKind;

/// Reason to reject an access command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AccessError {
    #[error("principal does not exist")]
    NotFound,
    #[error("cannot add the principal: the id belongs to a {kind}; use a new id")]
    AlreadyAdded { kind: PrincipalKind },
    #[error("cannot issue the token: the id belongs to another token; use a new id")]
    AlreadyIssued,
    #[error("cannot issue the token: the expiry time is in the past; use a later time")]
    ExpiresInThePast,
    #[error(
        "cannot revoke the token: it does not belong to the principal; `stead tokens list` lists the tokens"
    )]
    NoSuchToken,
}
