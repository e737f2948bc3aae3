//! What the supervisor hands to a shim: once, through a pipe, never through a file or an argument.
use std::{collections::BTreeMap, fs, path::PathBuf};

use domain::digest::Digest;
use schemas::manifest::Manifest;
use serde::{Deserialize, Serialize};

use crate::{
    data::{self, JobDir},
    tls::Trust,
};

/// Everything that a shim needs and cannot read in its directory.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// The manifest's bytes as they were signed: JSON.
    pub manifest: String,
    /// Their SHA-256.
    pub manifest_digest: Digest,
    /// Scheme, host and port of the Runner listener.
    pub server: String,
    /// Whom to believe to be that.
    pub trust: Trust,
    /// For the registry. Redacted.
    pub job_token: String,
    /// On the clock that nobody sets: milliseconds since the host started.
    pub deadline_uptime_ms: u64,
    /// Longest grace period that this runner gives: milliseconds.
    pub max_grace_ms: u64,
    /// Variables that the customer passes on. Their values are redacted.
    pub pass_env: BTreeMap<String, String>,
    /// Where programs are found.
    pub path: String,
    /// Where plugin executables are.
    pub plugin_dir: PathBuf,
}

impl Order {
    /// The manifest, within the limits of this runner.
    pub fn limited_manifest(&self) -> serde_json::Result<Manifest> {
        let mut manifest: Manifest = serde_json::from_str(&self.manifest)?;
        let grace = &mut manifest.timeouts.grace_ms;
        *grace = self.max_grace_ms.min(*grace);
        Ok(manifest)
    }

    /// Every value that must not be seen.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.pass_env.values().map(String::as_str).chain([self.job_token.as_str()])
    }
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Order").field("manifest", &self.manifest_digest).finish_non_exhaustive()
    }
}

/// The supervisor's word to a running shim: a file, so that it survives both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CancelOrder {
    /// Why, for people.
    pub reason: String,
    /// Milliseconds from the polite signal to the last one; absent: what the manifest gives the work to write down
    /// what it has done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// Who wants it.
    pub cause: Cause,
}

impl CancelOrder {
    /// The order that this job has, if any. One that cannot be read is an order to stop.
    pub fn of(dir: &JobDir) -> Option<Self> {
        let path = dir.cancel();
        match data::read_json(&path) {
            Ok(order) => order,
            // Without a free file descriptor no file can be read, also one that is not there.
            Err(_) if matches!(fs::exists(&path), Ok(false)) => None,
            Err(error) => {
                let reason = format!(
                    "cannot read {}: {error}; its sender is unknown, so the job is stopped as by the runner",
                    path.display()
                );
                Some(CancelOrder { reason, grace_ms: None, cause: Cause::AgentStop })
            }
        }
    }

    /// The vendor's cancel. The shim limits the grace period.
    pub fn of_vendor(reason: String, grace_s: u64, force: bool) -> Self {
        let grace_s = if force { grace_s.min(5) } else { grace_s };
        let grace_ms = Some(grace_s.saturating_mul(1_000));
        CancelOrder { reason, grace_ms, cause: Cause::Cancel }
    }

    /// Whether this leaves less time than what was told before. The manifest's own time counts as the longest.
    pub fn is_less_patient(&self, told: &CancelOrder) -> bool {
        self.grace_ms.is_some_and(|grace| told.grace_ms.is_none_or(|told| grace < told))
    }
}

/// Why a child is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Somebody asked.
    Cancel,
    /// Its time is over.
    Deadline,
    /// It was silent for too long.
    NoOutput,
    /// The agent or the host stops at once, or the customer said so.
    AgentStop,
}
