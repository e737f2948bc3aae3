//! What can have happened to access. The names are on disk: add, never rename.
use serde::{Deserialize, Serialize};

use super::{IssuedToken, PrincipalKind, Role};
use crate::{decider::Event, ids::TokenId};

/// A fact about access.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AccessEvent {
    /// Somebody is known, and may do nothing yet.
    PrincipalAdded {
        /// What it is.
        kind: PrincipalKind,
        /// Where the name is kept, outside the log.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name_ref: Option<String>,
    },
    /// It may do more.
    RoleGranted {
        /// What.
        role: Role,
    },
    /// It may do less.
    RoleRevoked {
        /// What no more.
        role: Role,
    },
    /// A token speaks for it.
    TokenIssued(IssuedToken),
    /// A token is heard no more.
    TokenRevoked {
        /// Which.
        token: TokenId,
    },
}

impl Event for AccessEvent {
    fn name(&self) -> &'static str {
        match self {
            AccessEvent::PrincipalAdded { .. } => "access.principal_added",
            AccessEvent::RoleGranted { .. } => "access.role_granted",
            AccessEvent::RoleRevoked { .. } => "access.role_revoked",
            AccessEvent::TokenIssued(_) => "access.token_issued",
            AccessEvent::TokenRevoked { .. } => "access.token_revoked",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
