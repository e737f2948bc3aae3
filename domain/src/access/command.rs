//! Commands of access.
use super::{IssuedToken, PrincipalKind, Role};
use crate::ids::TokenId;

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum AccessCommand {
    /// Add a principal without roles.
    AddPrincipal {
        /// Kind of the principal.
        kind: PrincipalKind,
        /// Reference to the name, which is stored outside the log.
        name_ref: Option<String>,
    },
    GrantRole {
        role: Role,
    },
    RevokeRole {
        role: Role,
    },
    /// Issue an API token to the principal.
    IssueToken(IssuedToken),
    RevokeToken {
        token: TokenId,
    },
}
