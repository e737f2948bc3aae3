//! What can be asked of access.
use super::{IssuedToken, PrincipalKind, Role};
use crate::ids::TokenId;

/// A request that may be refused.
#[derive(Debug, Clone, PartialEq)]
pub enum AccessCommand {
    /// Let somebody in who may do nothing yet.
    AddPrincipal {
        /// What it is.
        kind: PrincipalKind,
        /// Where the name is kept, outside the log.
        name_ref: Option<String>,
    },
    /// Let it do more.
    GrantRole {
        /// What.
        role: Role,
    },
    /// Let it do less.
    RevokeRole {
        /// What no more.
        role: Role,
    },
    /// Give out a token that speaks for it.
    IssueToken(IssuedToken),
    /// Stop hearing a token.
    RevokeToken {
        /// Which.
        token: TokenId,
    },
}
