//! Identity of a runner: enrolment, access tokens and key replacement.
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::ids::{InstallId, RunnerId};
use proof::dsse::Envelope;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Host, RunnerMode};
use crate::moment;

/// Request of `POST /runner/v1/enrol`.
///
/// Responses: 200 [`Enrolled`]. 401 for an unknown, used or expired token. 409 for a token that was
/// used with another key. 422 if the token is for another mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Enrol {
    /// Single-use enrolment token.
    pub token: String,
    /// Mode that the agent was started in.
    pub mode: RunnerMode,
    /// Ed25519 public key of the runner, 64 hexadecimal digits.
    pub identity_key: String,
    /// X25519 public key of the install, 64 hexadecimal digits. Absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_key: Option<String>,
    /// Version of the agent.
    pub version: String,
    /// Description of the host.
    pub host: Host,
    /// Outputs of the customer's stack, such as account and region: strings, lists and objects.
    /// Numbers are sent as strings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stack_outputs: BTreeMap<String, Value>,
}

/// Response to [`Enrol`]. A repeated request with the same token and key returns it again until the
/// token expires.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Enrolled {
    /// Id of the runner.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Mode of the runner.
    pub mode: RunnerMode,
    /// Id of the runner's install. Absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub install: Option<InstallId>,
    /// Id of the log that the runner will witness.
    pub log_id: String,
    /// Signed list of the server's keys ([`crate::keys::KeyList`]).
    #[schema(value_type = Object)]
    pub keys: Envelope,
    /// Time on the server.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
}

/// Request of `POST /runner/v1/rekey`.
///
/// Responses: 200 [`Rekeyed`]; 401 if a signature is missing or too old; 403 if the runner was
/// revoked; 409 if the runner had this key before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RekeyRequest {
    /// Assertion ([`crate::token::RekeyAssertion`]), signed by the old identity key.
    pub assertion: String,
    /// The same assertion, signed by the new identity key.
    pub proof: String,
}

/// Response to [`RekeyRequest`]. A repeated request with the same new key returns it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rekeyed {
    /// Id of the runner.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// New identity key, 64 hexadecimal digits.
    pub identity_key: String,
    /// Time on the server.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
}

/// Request of `POST /runner/v1/token`.
///
/// Responses: 200 [`TokenResponse`]; 401 if the assertion has a wrong signature, is too old or was
/// used before; 403 if the runner was revoked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenRequest {
    /// Assertion ([`crate::token::TokenAssertion`]), signed by the identity key.
    pub assertion: String,
}

/// Response to [`TokenRequest`]. A 401 that is caused by a wrong clock also carries `server_time`
/// in the problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenResponse {
    /// Access token for the header `Authorization: Bearer`.
    pub access_token: String,
    /// Remaining lifetime in seconds.
    pub expires_in_s: u64,
    /// Time on the server.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
}
