//! Messages from the supervisor to a shim. The supervisor sends the launch parameters once through
//! a pipe, never through a file or an argument.
use std::{collections::BTreeMap, fs, path::PathBuf};

use domain::digest::Digest;
use schemas::manifest::Manifest;
use serde::{Deserialize, Serialize};

use crate::{
    data::{self, JobDir},
    images::ImageSettings,
    isolation,
    plugins::{AllowedInKubeconfig, StateAccess},
    tls::Trust,
    values::OpenValues,
};

/// Launch parameters: everything that a shim needs and that is not in its directory.
#[derive(Serialize, Deserialize)]
pub struct ShimOrder {
    /// Bytes of the manifest as they were signed: JSON.
    pub manifest: String,
    /// SHA-256 of the manifest's bytes.
    pub manifest_digest: Digest,
    /// Scheme, host and port of the Runner listener.
    pub server: String,
    /// Certificates that the agent trusts for this server.
    pub trust: Trust,
    /// Token for the registry. Its value is redacted in the log.
    pub job_token: String,
    /// Deadline on the monotonic clock, in milliseconds since the host started.
    pub deadline_uptime_ms: u64,
    /// Longest grace period that this runner allows, in milliseconds.
    pub max_grace_ms: u64,
    /// Environment variables that the customer passes to jobs. Their values are redacted.
    pub pass_env: BTreeMap<String, String>,
    /// Environment variables of the agent for git and for charts. Empty on a runner of an install.
    #[serde(default)]
    pub git_env: BTreeMap<String, String>,
    /// Features that the customer allows in the kubeconfig of a component.
    #[serde(default)]
    pub kubeconfig_allows: AllowedInKubeconfig,
    /// Isolation of the job's programs.
    #[serde(default)]
    pub isolation: isolation::Choice,
    /// Limits of memory and processes.
    #[serde(default)]
    pub limits: JobLimits,
    /// Search path of programs.
    pub path: String,
    /// Directory of the plugin executables.
    pub plugin_dir: PathBuf,
    /// Keys of the states that the job may use. Absent for jobs without state.
    #[serde(default)]
    pub state: Option<StateAccess>,
    /// Options of the runner about registries of images.
    #[serde(default)]
    pub images: ImageSettings,
    /// Sensitive values to insert into the manifest, by their ids. They are redacted.
    #[serde(default)]
    pub values: OpenValues,
}

impl ShimOrder {
    /// Returns the manifest, with the grace period limited by this runner.
    pub fn limited_manifest(&self) -> serde_json::Result<Manifest> {
        let mut manifest: Manifest = serde_json::from_str(&self.manifest)?;
        let grace = &mut manifest.timeouts.grace_ms;
        *grace = self.max_grace_ms.min(*grace);
        Ok(manifest)
    }

    /// Returns every value to redact.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let values = self.values.values().map(|value| &**value);
        self.pass_env.values().map(String::as_str).chain([self.job_token.as_str()]).chain(values)
    }
}

impl std::fmt::Debug for ShimOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Order").field("manifest", &self.manifest_digest).finish_non_exhaustive()
    }
}

/// Limits of all processes of a job together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLimits {
    /// Resident memory in bytes.
    pub memory_bytes: Option<u64>,
    pub processes: Option<u32>,
}

/// Request to stop a running job, from the supervisor or from `stead-runner disable`. The request
/// is a file, so it outlives the process that wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CancelOrder {
    /// Reason, for users.
    pub reason: String,
    /// Milliseconds from the stop signal to SIGKILL. If absent, the grace period of the manifest
    /// applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    pub cause: StopCause,
}

impl CancelOrder {
    /// Returns the cancel request for this job, if there is one. A request that cannot be read
    /// stops the job.
    pub fn of(dir: &JobDir) -> Option<Self> {
        let path = dir.cancel();
        match data::read_json(&path) {
            Ok(order) => order,
            // Without a free file descriptor even a missing file cannot be read.
            Err(_) if matches!(fs::exists(&path), Ok(false)) => None,
            Err(error) => {
                let reason = format!(
                    "cannot read the cancel request {}: {error}; the runner stops the job",
                    path.display()
                );
                Some(CancelOrder { reason, grace_ms: None, cause: StopCause::AgentStop })
            }
        }
    }

    /// Returns the request for a cancel that the vendor sent. `force` limits the grace period to
    /// five seconds. The shim limits it to the runner's maximum.
    pub fn of_vendor(reason: String, grace_s: u64, force: bool) -> Self {
        let grace_s = if force { grace_s.min(5) } else { grace_s };
        let grace_ms = Some(grace_s.saturating_mul(1_000));
        CancelOrder { reason, grace_ms, cause: StopCause::Cancel }
    }

    /// Returns whether this request leaves less time than an earlier one. The grace period of the
    /// manifest counts as the longest.
    pub fn is_stricter_than(&self, earlier: &CancelOrder) -> bool {
        self.grace_ms.is_some_and(|grace| earlier.grace_ms.is_none_or(|earlier| grace < earlier))
    }
}

/// Cause of a stop, which determines the outcome in the final report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    Cancel,
    Deadline,
    /// The child wrote no output for too long.
    NoOutput,
    /// The job used more memory than its limit.
    Memory,
    /// The job started more processes than its limit.
    Processes,
    /// The agent or the host stops immediately, or the customer stops all jobs.
    AgentStop,
}

impl StopCause {
    /// Returns the reason of a job that exceeded a limit of memory or processes.
    pub(crate) fn limit(self) -> Option<&'static str> {
        match self {
            StopCause::Memory => Some("the job used more memory than its limit"),
            StopCause::Processes => {
                Some("the job started more processes and threads than its limit")
            }
            StopCause::Cancel
            | StopCause::Deadline
            | StopCause::NoOutput
            | StopCause::AgentStop => None,
        }
    }
}
