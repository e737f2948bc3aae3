//! Events of a principal's access. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use super::{IssuedToken, PrincipalKind, Role};
use crate::{decider::Event, ids::TokenId};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AccessEvent {
    /// A principal was added. It has no roles and no tokens yet.
    PrincipalAdded {
        kind: PrincipalKind,
        /// Reference to the display name, which is stored outside the log. Absent if the principal
        /// has no name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name_ref: Option<String>,
    },
    /// The principal has this role in addition to its other roles.
    RoleGranted { role: Role },
    /// The principal no longer has this role. Other roles stay.
    RoleRevoked { role: Role },
    /// The principal got an API token. The event contains only the digest of the token's secret.
    TokenIssued(IssuedToken),
    /// The API token is permanently invalid, even before its expiry time.
    TokenRevoked { token: TokenId },
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
