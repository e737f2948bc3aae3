use super::{IssuedToken, PrincipalKind, Role};
use crate::ids::TokenId;

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum AccessCommand {
    /// Add a principal without roles.
    AddPrincipal {
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
    IssueToken(IssuedToken),
    RevokeToken {
        token: TokenId,
    },
}
