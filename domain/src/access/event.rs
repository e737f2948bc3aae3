//! Events of access. Their names and payloads are stored: from the first release on, add and never rename.
use serde::{Deserialize, Serialize};

use super::{IssuedToken, PrincipalKind, Role};
use crate::{decider::Event, ids::TokenId};

/// An event of access.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AccessEvent {
    /// A principal was added, without any role.
    PrincipalAdded {
        /// Kind of the principal.
        kind: PrincipalKind,
        /// Reference to the name, which is stored outside the log.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name_ref: Option<String>,
    },
    /// A role was granted.
    RoleGranted {
        /// The role.
        role: Role,
    },
    /// A role was revoked.
    RoleRevoked {
        /// The role.
        role: Role,
    },
    /// A token was issued to the principal.
    TokenIssued(IssuedToken),
    /// A token was revoked.
    TokenRevoked {
        /// The token.
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
