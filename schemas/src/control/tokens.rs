//! Principals and their tokens.
use chrono::{DateTime, Utc};
use domain::ids::{PrincipalId, TokenId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment;

/// Role of a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Full access.
    Owner,
    /// Read access to everything. May approve and deny plans.
    Approver,
    /// Read access to everything, including the log.
    Auditor,
    /// Read access to apps, installs, runs, jobs and runners.
    Viewer,
}

impl Role {
    /// Describes the permissions of the role for users. A test of `api` compares it with the routes.
    pub fn summary(self) -> &'static str {
        match self {
            Role::Owner => "Everything",
            Role::Approver => {
                "Viewer permissions; approve and deny plans of runs. No access to events of the log"
            }
            Role::Auditor => {
                "Viewer permissions; read audit (events, exports, proofs), blobs, projections and \
                 subjects"
            }
            Role::Viewer => {
                "Read apps, builds, changes, installs, jobs (with their logs), runners and runs (with their plans)"
            }
        }
    }
}

/// Request to create a principal with one role and a token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Display name, shown with the principal's id or in place of it. The server stores it outside
    /// the log, so it can be changed and erased. At most 80 characters, without `:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 80)]
    pub name: Option<String>,
    /// Role of the principal.
    pub role: Role,
    /// Lifetime in seconds. Default: no expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
}

/// Created token. The secret is shown once: the server stores only its hash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    /// Id of the token. Not secret.
    #[schema(value_type = String)]
    pub id: TokenId,
    /// Id of the principal.
    #[schema(value_type = String)]
    pub principal: PrincipalId,
    /// Token secret. Absent in the response to a repeated request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Expiry. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub expires_at: Option<DateTime<Utc>>,
    /// Position after which reads include the change.
    pub position: u64,
}

/// Change of a principal's display name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenamePrincipal {
    /// New display name. Absent: erases the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 80)]
    pub name: Option<String>,
}

/// Token in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Id of the token.
    #[schema(value_type = String)]
    pub id: TokenId,
    /// Id of the principal.
    #[schema(value_type = String)]
    pub principal: PrincipalId,
    /// Display name of the principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Roles of the principal.
    pub roles: Vec<String>,
    /// State: `active`, `expired` or `revoked`.
    pub state: String,
    /// Issue time.
    #[serde(with = "moment")]
    pub issued_at: DateTime<Utc>,
    /// Expiry. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub expires_at: Option<DateTime<Utc>>,
}

/// Caller and server of the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    /// Id of the calling principal.
    #[schema(value_type = String)]
    pub principal: PrincipalId,
    /// Display name of the calling principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Roles of the calling principal.
    pub roles: Vec<String>,
    /// Origin of the server's log, `stead/<log id>`.
    pub log: String,
    /// Version of the server.
    pub version: String,
    /// Position of the head of the log.
    pub position: u64,
}
