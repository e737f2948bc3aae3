//! State of a runner, folded from its events.
use std::collections::{BTreeMap, BTreeSet};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RunnerError;
use crate::{
    decider::Timestamp,
    digest::Digest,
    ids::{ExecutionId, InstallId, JobId, TokenId},
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Runner {
    /// Identity of the runner. `None` before the runner enrolled.
    pub identity: Option<Identity>,
    /// Replaced identity keys, hexadecimal. The runner may not use them again.
    pub former_keys: BTreeSet<String>,
    /// True if an actor requested a new identity key and the runner has not replaced its key yet.
    pub rekey_requested: bool,
    pub disabled: BTreeSet<Side>,
    /// True during a drain: the runner finishes its jobs and gets no new ones.
    pub draining: bool,
    pub revoked: bool,
    /// True if a runner on another host recovered the keys of this one's install.
    #[serde(default)]
    pub replaced: bool,
    /// Time of the last call before the disconnect. `None` while the runner is connected.
    #[bincode(with_serde)]
    pub disconnected_since: Option<Timestamp>,
    /// True if the runner announced its shutdown before the disconnect.
    #[serde(default)]
    pub stopped: bool,
    /// Last refusals, oldest first. A repeated report of one of them is ignored.
    pub refusals: Vec<Refusal>,
    /// Seeds of the install's keys, wrapped for the customer's recovery recipients, by recipient.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub recipients: BTreeMap<String, WrappedSeed>,
}

/// Wrapped seed of an install's keys, which the server stores and cannot read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WrappedSeed {
    /// Generation of the keys.
    pub generation: u32,
    /// Digest of the wrapped seed.
    pub digest: Digest,
}

/// Identity of a runner since its enrolment. Only the keys can change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Identity {
    /// Kind of work that the runner accepts.
    pub mode: RunnerMode,
    /// Install of the runner. Absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallId>,
    /// Ed25519 public key of the runner, hexadecimal.
    pub identity_key: String,
    /// Public keys of the install. Absent for a build runner, and for a runner that enrolled before
    /// installs had them, until it reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_keys: Option<InstallPublicKeys>,
    /// Version of `stead-runner` at the enrolment.
    pub version: String,
    pub host: Host,
    /// Id of the redeemed enrolment token.
    pub enrolment: TokenId,
}

/// Public keys of an install, signed by the runner that has the secret ones. The keys of a
/// generation never change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InstallPublicKeys {
    /// Generation of the keys, from 1.
    pub generation: u32,
    /// X25519 public key to encrypt data for the install, 64 lower-case hexadecimal digits.
    pub encryption_key: String,
    /// Ed25519 public key that verifies data of the install, 64 lower-case hexadecimal digits.
    pub signing_key: String,
    /// Signature of the other fields by the identity key of the runner, base64.
    pub signature: String,
}

/// Mode of a runner, which determines the jobs that it accepts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode, ToSchema,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunnerMode {
    /// Plans, applies and actions of one install.
    Install,
    /// Builds of the vendor's artifacts.
    Build,
}

/// Host of a runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Host {
    /// Operating system, for example `linux` or `macos`.
    pub os: String,
    /// Processor architecture, for example `x86_64` or `aarch64`.
    pub arch: String,
    /// Host name. Absent if the runner does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// Side that can disable a runner independently of the other side.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Encode, Decode,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The vendor, through the Control API.
    Vendor,
    /// The customer, on the host of the runner.
    Customer,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Refusal {
    pub job: JobId,
    /// Execution of the runner. Absent if the runner had not claimed the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionId>,
    /// Check that caused the refusal.
    pub refused_by: RefusedBy,
    /// Name of the violated rule.
    pub rule: String,
    /// Explanation of the refusal for users.
    pub detail: String,
}

/// Check that caused a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RefusedBy {
    /// Policy file or disable file of the customer.
    CustomerPolicy,
    /// Verification of signatures, digests and proofs.
    Verification,
    /// Availability of the required plugin and tools.
    Capability,
    /// Veto command of the customer.
    Veto,
}

/// Maximum number of stored refusals. A new one replaces the oldest.
const REFUSALS: usize = 32;

impl Runner {
    /// Returns true if the runner may get a job.
    pub fn takes_work(&self) -> bool {
        self.identity.is_some() && !self.revoked && self.disabled.is_empty() && !self.draining
    }

    /// Returns the current identity key of the runner, hexadecimal.
    pub fn key(&self) -> Option<&String> {
        self.identity.as_ref().map(|identity| &identity.identity_key)
    }

    /// Returns the keys of this runner, which a runner of the same install may recover.
    ///
    /// # Errors
    /// If this runner has no keys of that install.
    pub fn recoverable_keys(&self, install: InstallId) -> Result<&InstallPublicKeys, RunnerError> {
        let of_install =
            self.identity.as_ref().filter(|identity| identity.install == Some(install));
        let recorded = of_install.and_then(|identity| identity.install_keys.as_ref());
        recorded.ok_or(RunnerError::NoFormerKeys)
    }

    /// Checks that another runner may register these keys as the successors of this runner's keys.
    /// The caller has verified that the former keys signed them. `current` are the keys of the
    /// install's runner, or of the runner that the vendor chose: replaced keys have no successors,
    /// because a thief may have them.
    ///
    /// # Errors
    /// If this runner has no keys of that install, its generation is not earlier, or its keys are not
    /// the current ones.
    pub fn check_successor(
        &self,
        install: InstallId,
        keys: &InstallPublicKeys,
        current: Option<&InstallPublicKeys>,
    ) -> Result<(), RunnerError> {
        let recorded = self.recoverable_keys(install)?;
        let generation = keys.generation;
        if generation <= recorded.generation {
            let recorded = recorded.generation;
            return Err(RunnerError::GenerationNotLater { generation, recorded });
        }
        match current.is_some_and(|current| current.is_same(recorded)) {
            true => Ok(()),
            false => Err(RunnerError::KeysWereReplaced),
        }
    }

    /// Returns the public keys of the install.
    pub fn install_keys(&self) -> Option<&InstallPublicKeys> {
        self.identity.as_ref().and_then(|identity| identity.install_keys.as_ref())
    }

    pub(super) fn store_refusal(&mut self, refusal: Refusal) {
        if self.refusals.len() >= REFUSALS {
            self.refusals.remove(0);
        }
        self.refusals.push(refusal);
    }
}

impl InstallPublicKeys {
    /// Returns true if both have the same keys of the same generation. A later signature of the
    /// same keys can differ.
    pub fn is_same(&self, other: &InstallPublicKeys) -> bool {
        let keys = |of: &InstallPublicKeys| {
            (of.generation, of.encryption_key.clone(), of.signing_key.clone())
        };
        keys(self) == keys(other)
    }
}
