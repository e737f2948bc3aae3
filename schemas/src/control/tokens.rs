//! API tokens, and the principals that have them.
use chrono::{DateTime, Utc};
use domain::ids::{PrincipalId, TokenId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment;

/// Role of a principal, which determines its permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// All permissions.
    Owner,
    /// Permissions of a viewer, and approval or denial of plans.
    Approver,
    /// Permissions of a viewer, and read access to the log, its proofs, blobs, projections and data
    /// subjects.
    Auditor,
    /// Read access to apps, builds, changes, installs, runs, jobs and runners.
    Viewer,
}

impl Role {
    /// Describes the permissions of the role for users. A test of `api` compares it with the
    /// routes.
    pub fn summary(self) -> &'static str {
        match self {
            Role::Owner => "Everything",
            Role::Approver => {
                "Viewer permissions; read details of plans; approve and deny plans of runs. No access to events of the log"
            }
            Role::Auditor => {
                "Viewer permissions; read details of plans, audit (events, exports, proofs), blobs, projections, \
                 subjects and webhooks"
            }
            Role::Viewer => {
                "Read apps, builds, changes, installs, jobs (with their logs), plugins, runners and runs (with their plans)"
            }
        }
    }
}

/// Request to create a principal with one role and a token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Display name of the principal, at most 80 characters and without `:`. The server stores the
    /// name outside the log, so a user can change and erase it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 80)]
    pub name: Option<String>,
    /// Only role of the new principal.
    pub role: Role,
    /// Lifetime of the token in seconds. Default: the token does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
}

/// New principal with its token. The server stores only a digest of the token, so this response is
/// the only one with the token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    /// Id of the token: `tok_` and a ULID. The id is not secret.
    #[schema(value_type = String)]
    pub id: TokenId,
    /// Id of the principal: `prn_` and a ULID.
    #[schema(value_type = String)]
    pub principal: PrincipalId,
    /// API token, a secret. Absent in the response to a repeated request, because the server does
    /// not store the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Time from which the token is invalid. Absent if the token does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub expires_at: Option<DateTime<Utc>>,
    /// Log position of the change. A read with this `min_position` includes the change.
    pub position: u64,
}

/// Request to change the display name of a principal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenamePrincipal {
    /// New display name, at most 80 characters and without `:`. If absent, the server erases the
    /// current name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 80)]
    pub name: Option<String>,
}

/// API token, without its secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Id of the token: `tok_` and a ULID. The id is not secret.
    #[schema(value_type = String)]
    pub id: TokenId,
    /// Id of the principal: `prn_` and a ULID.
    #[schema(value_type = String)]
    pub principal: PrincipalId,
    /// Display name of the principal. Absent if the principal has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Roles of the principal: `owner`, `approver`, `auditor` or `viewer`.
    pub roles: Vec<String>,
    /// State: `active`, `expired` or `revoked`.
    pub state: String,
    /// Time when the token was issued.
    #[serde(with = "moment")]
    pub issued_at: DateTime<Utc>,
    /// Time from which the token is invalid. Absent if the token does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub expires_at: Option<DateTime<Utc>>,
}

/// Calling principal, and the server that responds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    /// Id of the calling principal: `prn_` and a ULID.
    #[schema(value_type = String)]
    pub principal: PrincipalId,
    /// Display name of the calling principal. Absent if the principal has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Roles of the calling principal: `owner`, `approver`, `auditor` or `viewer`.
    pub roles: Vec<String>,
    /// Origin of the server's log in checkpoints, `stead/<log id>`.
    pub log: String,
    /// Version of the server program.
    pub version: String,
    /// Log position of the head.
    pub position: u64,
}
