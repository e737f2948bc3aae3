//! State of an enrolment token, folded from its events.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    decider::Timestamp,
    digest::Digest,
    ids::{InstallId, RunnerId},
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Enrolment {
    /// Issued token. `None` before the token is issued.
    pub issue: Option<EnrolmentToken>,
    /// Use of the token. `None` before a runner enrolled with the token.
    pub redeemed: Option<Redemption>,
    pub revoked: bool,
    /// Number of times that a holder of the token read the wrapped seeds of the install.
    #[serde(default)]
    pub offers: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EnrolmentToken {
    /// Purpose of the runner that may enrol.
    pub purpose: Purpose,
    /// Digest of the token's secret.
    pub sha256: Digest,
    /// Time from which the token is invalid.
    #[serde(with = "crate::moment")]
    #[cfg_attr(test, schemars(with = "Timestamp"))]
    #[bincode(with_serde)]
    pub expires_at: Timestamp,
    /// Former runner whose keys the holder may recover, although those of another runner replaced
    /// them: a decision of the vendor. Absent for an ordinary token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recover_from: Option<RunnerId>,
}

/// Purpose of the runner that a token enrols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Purpose {
    /// The runner executes the jobs of one install.
    Install { install: InstallId },
    /// The runner builds artifacts for the vendor.
    Build,
}

/// Runner that enrolled with the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Redemption {
    /// Id of the runner, which the server assigned.
    pub runner: RunnerId,
    /// Ed25519 public key of the runner, hexadecimal.
    pub identity_key: String,
}
