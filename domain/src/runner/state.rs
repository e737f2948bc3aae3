//! What we know of a runner.
use std::collections::BTreeSet;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    decider::Timestamp,
    ids::{ExecutionId, InstallId, JobId, TokenId},
};

/// One agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Runner {
    /// Who it is. Nothing before it enrolled.
    pub identity: Option<Identity>,
    /// The keys that it signed with before, hexadecimal.
    pub former_keys: BTreeSet<String>,
    /// Whether it is to make itself another key, and has not yet.
    pub rekey_requested: bool,
    /// The switches that are off.
    pub disabled: BTreeSet<Side>,
    /// Whether it finishes what it has, and gets nothing more.
    pub draining: bool,
    /// Whether it is never heard again.
    pub revoked: bool,
    /// Its last call, if it is silent.
    #[bincode(with_serde)]
    pub disconnected_since: Option<Timestamp>,
    /// Whether it is silent because it ended in order.
    #[serde(default)]
    pub stopped: bool,
    /// The last refusals, to know a repeated one.
    pub refusals: Vec<Refusal>,
}

/// Who a runner is, as it said when it enrolled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Identity {
    /// What it is for.
    pub mode: RunnerMode,
    /// Its install, and no other; none for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallId>,
    /// The public key that it signs with, hexadecimal.
    pub identity_key: String,
    /// Public key of the install for encrypting secrets to it, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_key: Option<String>,
    /// Of the program.
    pub version: String,
    /// Where it runs.
    pub host: Host,
    /// The token that let it in.
    pub enrolment: TokenId,
}

/// Purpose of a runner.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode, ToSchema,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunnerMode {
    /// Works in one install.
    Install,
    /// Builds artifacts for the vendor.
    Build,
}

/// Host of a runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Host {
    /// `linux`, `macos` …
    pub os: String,
    /// `x86_64`, `aarch64` …
    pub arch: String,
    /// Name of the host, if the customer reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// Whose switch it is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Encode, Decode,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Ours.
    Vendor,
    /// That of whose account it is.
    Customer,
}

/// A job that a runner will not do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Refusal {
    /// Which.
    pub job: JobId,
    /// In which attempt, if it had claimed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionId>,
    /// Who or what says no.
    pub refused_by: RefusedBy,
    /// The rule that says no.
    pub rule: String,
    /// In words.
    pub detail: String,
}

/// Source of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RefusedBy {
    /// Policy file or disable file of the customer.
    CustomerPolicy,
    /// Invalid signature, digest or proof.
    Verification,
    /// Plugin or tool that this runner does not have.
    Capability,
    /// Veto command of the customer.
    Veto,
}

/// How many refusals are remembered.
const REFUSALS: usize = 32;

impl Runner {
    /// Whether it may be given a job.
    pub fn takes_work(&self) -> bool {
        self.identity.is_some() && !self.revoked && self.disabled.is_empty() && !self.draining
    }

    /// The public key that it signs with now, hexadecimal.
    pub fn key(&self) -> Option<&String> {
        self.identity.as_ref().map(|identity| &identity.identity_key)
    }

    pub(super) fn remember(&mut self, refusal: Refusal) {
        if self.refusals.len() >= REFUSALS {
            self.refusals.remove(0);
        }
        self.refusals.push(refusal);
    }
}
