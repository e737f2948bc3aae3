//! How a runner comes to be known: enrol once, then short tokens.
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::ids::{InstallId, RunnerId};
use proof::dsse::Envelope;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::moment;

/// What a runner is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunnerMode {
    /// It works inside one install.
    Install,
    /// It builds artifacts for the vendor.
    Build,
}

/// `POST /runner/v1/enrol`: 200 [`Enrolled`]; 401 the token is unknown, used up or expired; 409 it was used
/// with another key; 422 the mode is not the token's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Enrol {
    /// The single-use enrolment token.
    pub token: String,
    /// What the runner was started for.
    pub mode: RunnerMode,
    /// Ed25519 public key, 64 hexadecimal digits.
    pub identity_key: String,
    /// The install's X25519 public key, 64 hexadecimal digits; absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_key: Option<String>,
    /// The agent's version.
    pub version: String,
    /// Facts of the host.
    pub host: Host,
    /// What the customer's stack gave out: account, region … Texts, lists and objects; a number is given as a text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stack_outputs: BTreeMap<String, Value>,
}

/// Facts of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// `linux`, `macos` …
    pub os: String,
    /// `x86_64`, `aarch64` …
    pub arch: String,
    /// The host's name, where the customer lets it be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// The answer to [`Enrol`]; the same token and key get it again until the token expires.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Enrolled {
    /// Who the runner is from now on.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// What it is for.
    pub mode: RunnerMode,
    /// The install that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub install: Option<InstallId>,
    /// The log that it will be a witness of.
    pub log_id: String,
    /// The signed list of the server's keys ([`crate::keys::KeyList`]).
    #[schema(value_type = Object)]
    pub keys: Envelope,
    /// The server's clock.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
}

/// `POST /runner/v1/rekey`: 200 [`Rekeyed`]; 401 not signed by both keys, or too old; 403 the runner was revoked;
/// 409 it had this key before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RekeyRequest {
    /// A [`crate::token::Rekey`], signed by the identity key that is to be replaced.
    pub assertion: String,
    /// The same, signed by the new one.
    pub proof: String,
}

/// The answer to [`RekeyRequest`]; the same new key gets it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rekeyed {
    /// Who it is.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// The key that it signs with from now on, 64 hexadecimal digits.
    pub identity_key: String,
    /// The server's clock.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
}

/// `POST /runner/v1/token`: 200 [`TokenResponse`]; 401 not signed by the runner's key, too old, or used
/// before; 403 the runner was revoked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenRequest {
    /// A [`crate::token::Assertion`], signed by the identity key.
    pub assertion: String,
}

/// The answer to [`TokenRequest`]. A 401 because of the clock carries `server_time` too, in the problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenResponse {
    /// For `Authorization: Bearer`.
    pub access_token: String,
    /// Seconds from now.
    pub expires_in_s: u64,
    /// The server's clock.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
}
