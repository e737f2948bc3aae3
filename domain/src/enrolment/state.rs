//! What we know of an enrolment.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    decider::Timestamp,
    digest::Digest,
    ids::{InstallId, RunnerId},
};

/// A token that lets one runner in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Enrolment {
    /// What was given out. Nothing before.
    pub issue: Option<Issue>,
    /// Who came in with it.
    pub redeemed: Option<Redemption>,
    /// Whether somebody took it back.
    pub revoked: bool,
}

/// What was given out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Issue {
    /// What the runner will be for.
    pub purpose: Purpose,
    /// Of the secret, which is kept nowhere.
    pub sha256: Digest,
    /// After this moment it lets nobody in.
    #[serde(with = "crate::moment")]
    #[cfg_attr(test, schemars(with = "Timestamp"))]
    #[bincode(with_serde)]
    pub expires_at: Timestamp,
}

/// What a runner is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Purpose {
    /// One install, and nothing else.
    Install {
        /// Which.
        install: InstallId,
    },
    /// Artifacts.
    Build,
}

/// Who came in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Redemption {
    /// Under this id.
    pub runner: RunnerId,
    /// The runner's public key, hexadecimal.
    pub identity_key: String,
}
