//! State of an enrolment token, folded from its events.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    decider::Timestamp,
    digest::Digest,
    ids::{InstallId, RunnerId},
};

/// Enrolment token of one runner.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Enrolment {
    /// Issued token; none before.
    pub issue: Option<EnrolmentToken>,
    /// Runner that enrolled with the token.
    pub redeemed: Option<Redemption>,
    /// True if the token was revoked.
    pub revoked: bool,
}

/// Issued enrolment token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EnrolmentToken {
    /// Purpose of the runner.
    pub purpose: Purpose,
    /// Digest of the secret. The secret itself is not stored.
    pub sha256: Digest,
    /// Time at which the token expires.
    #[serde(with = "crate::moment")]
    #[cfg_attr(test, schemars(with = "Timestamp"))]
    #[bincode(with_serde)]
    pub expires_at: Timestamp,
}

/// Purpose of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Purpose {
    /// Jobs of one install.
    Install { install: InstallId },
    /// Builds of artifacts.
    Build,
}

/// Runner that enrolled with the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Redemption {
    /// Id that the runner received.
    pub runner: RunnerId,
    /// The runner's public key, hexadecimal.
    pub identity_key: String,
}
