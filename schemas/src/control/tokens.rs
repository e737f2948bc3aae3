//! Principals' tokens, and who is asking.
use chrono::{DateTime, Utc};
use domain::ids::{PrincipalId, TokenId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment;

/// What a principal may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Owner,
    /// Read everything; approve and deny.
    Approver,
    /// Read everything, the log included.
    Auditor,
    /// Read apps, installs, runs, jobs and runners.
    Viewer,
}

/// Make a principal with one role, and a token for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Who it is for, as people say it: shown beside or instead of the principal's id. Kept outside the log;
    /// it can be changed and forgotten. At most 80 characters, none of them `:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 80)]
    pub name: Option<String>,
    /// What it may do.
    pub role: Role,
    /// For how long. Absent: until revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
}

/// A token that was made. The secret is shown once; the server keeps only a hash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    /// Names the token; no secret.
    #[schema(value_type = String)]
    pub id: TokenId,
    /// For whom.
    #[schema(value_type = String)]
    pub principal: PrincipalId,
    /// The secret. Absent when a repeated call repeats the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub expires_at: Option<DateTime<Utc>>,
    /// Visible from here.
    pub position: u64,
}

/// Call a principal something else.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenamePrincipal {
    /// The new name. Absent: what it was called is forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 80)]
    pub name: Option<String>,
}

/// A token in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Names the token.
    #[schema(value_type = String)]
    pub id: TokenId,
    /// For whom.
    #[schema(value_type = String)]
    pub principal: PrincipalId,
    /// What the principal is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What they may do.
    pub roles: Vec<String>,
    /// `active`, `expired` or `revoked`.
    pub state: String,
    /// When it was issued.
    #[serde(with = "moment")]
    pub issued_at: DateTime<Utc>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub expires_at: Option<DateTime<Utc>>,
}

/// Who is asking, and whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    /// The caller.
    #[schema(value_type = String)]
    pub principal: PrincipalId,
    /// What the caller is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What they may do.
    pub roles: Vec<String>,
    /// The log of this server: `stead/<log id>`.
    pub log: String,
    /// The version of the server.
    pub version: String,
    /// The last position of the log.
    pub position: u64,
}
