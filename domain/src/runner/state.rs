//! State of a runner, folded from its events.
use std::collections::BTreeSet;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    decider::Timestamp,
    ids::{ExecutionId, InstallId, JobId, TokenId},
};

/// State of a runner.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Runner {
    /// Identity; none before the runner enrolled.
    pub identity: Option<Identity>,
    /// Replaced public keys, hexadecimal.
    pub former_keys: BTreeSet<String>,
    /// True if the runner was asked to replace its key and has not done so.
    pub rekey_requested: bool,
    /// Sides that disabled the runner.
    pub disabled: BTreeSet<Side>,
    /// True if the runner finishes its jobs and gets no new ones.
    pub draining: bool,
    /// True if the runner is permanently revoked.
    pub revoked: bool,
    /// Time of the last call; none while the runner is connected.
    #[bincode(with_serde)]
    pub disconnected_since: Option<Timestamp>,
    /// True if the runner announced its end before it disconnected.
    #[serde(default)]
    pub stopped: bool,
    /// Last refusals, to detect a repeated one.
    pub refusals: Vec<Refusal>,
}

/// Identity of a runner, as it enrolled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Identity {
    /// Purpose of the runner.
    pub mode: RunnerMode,
    /// Install that the runner is bound to; absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallId>,
    /// Public key that the runner signs with, hexadecimal.
    pub identity_key: String,
    /// Public key of the install for encrypting secrets to it, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_key: Option<String>,
    /// Version of the runner program.
    pub version: String,
    /// Host of the runner.
    pub host: Host,
    /// Enrolment token of the runner.
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

/// Side that can disable a runner.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Encode, Decode,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The vendor, on the server.
    Vendor,
    /// The customer that owns the account.
    Customer,
}

/// Refusal of a job by a runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Refusal {
    pub job: JobId,
    /// Execution, if the runner had claimed the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionId>,
    /// Source of the refusal.
    pub refused_by: RefusedBy,
    /// Rule that caused the refusal.
    pub rule: String,
    /// Explanation for users.
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

/// Maximum number of stored refusals.
const REFUSALS: usize = 32;

impl Runner {
    /// Returns true if the runner may get a job.
    pub fn takes_work(&self) -> bool {
        self.identity.is_some() && !self.revoked && self.disabled.is_empty() && !self.draining
    }

    /// Returns the public key that the runner signs with now, hexadecimal.
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
