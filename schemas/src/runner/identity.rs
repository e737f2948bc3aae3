//! Identity of a runner: enrolment, access tokens and key replacement.
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::ids::{InstallId, RunnerId};
use proof::dsse::Envelope;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Host, InstallPublicKeys, RecoveryProof, RunnerMode};
use crate::moment;

/// Request of `POST /runner/v1/enrol`.
///
/// Responses: 200 [`Enrolled`]. 401 for an unknown, revoked or expired token. 409 for a token that
/// was used with another key, and for an install with another runner. 422 for an invalid request,
/// and for a token of the other mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Enrol {
    /// Enrolment token, which is valid for one runner.
    pub token: String,
    /// Mode of the runner. The purpose of the token must match.
    pub mode: RunnerMode,
    /// Ed25519 public key of the runner, 64 lower-case hexadecimal digits.
    pub identity_key: String,
    /// Public keys of the install. Absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_keys: Option<InstallPublicKeys>,
    /// Version of `stead-runner`.
    pub version: String,
    /// Host of the runner.
    pub host: Host,
    /// Outputs of the customer's stack by name, for example account and region. Numbers are sent as
    /// strings. Empty for a build runner.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stack_outputs: BTreeMap<String, Value>,
    /// Proof that the runner recovered the keys of the install. It then needs no stack outputs: those
    /// of the former runner stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryProof>,
}

/// Response to [`Enrol`]. Until the token expires, a repeated request with the same token and key
/// returns the same runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Enrolled {
    /// Id of the runner: `rnr_` and a ULID.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Mode of the runner, as in the request.
    pub mode: RunnerMode,
    /// Id of the runner's install: `ins_` and a ULID. Absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub install: Option<InstallId>,
    /// Id of the server's log, which the runner witnesses.
    pub log_id: String,
    /// Signed list of the server's keys ([`crate::keys::KeyList`]).
    #[schema(value_type = Object)]
    pub keys: Envelope,
    /// Current time of the server's clock.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
}

/// Request of `POST /runner/v1/rekey`.
///
/// Responses: 200 [`Rekeyed`]. 401 for an invalid signature, and for an assertion outside its
/// validity. 403 if the runner was revoked. 409 if the runner had this key before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RekeyRequest {
    /// Assertion ([`crate::token::RekeyAssertion`]), signed by the current identity key.
    pub assertion: String,
    /// Assertion with the same claims, signed by the new identity key.
    pub proof: String,
}

/// Response to [`RekeyRequest`]. A repeated request with the same new key returns the same
/// response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rekeyed {
    /// Id of the runner: `rnr_` and a ULID.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// New identity key, 64 hexadecimal digits.
    pub identity_key: String,
    /// Current time of the server's clock.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
}

/// Request of `POST /runner/v1/token`.
///
/// Responses: 200 [`TokenResponse`]. 401 for an invalid signature, an assertion outside its
/// validity, and a repeated assertion. 403 if the runner was revoked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenRequest {
    /// Assertion ([`crate::token::TokenAssertion`]), signed by the identity key.
    pub assertion: String,
}

/// Response to [`TokenRequest`]. If the times of the assertion do not match the server's clock, the
/// 401 problem has the member `server_time`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenResponse {
    /// Access token for the header `Authorization: Bearer`.
    pub access_token: String,
    /// Remaining lifetime of the access token in seconds.
    pub expires_in_s: u64,
    /// Current time of the server's clock.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
}
