//! Interface between a shim and a plugin.

use std::{collections::BTreeMap, io, net::TcpListener, path::PathBuf, sync::Arc, time::Duration};

use domain::{
    digest::Digest,
    ids::{ExecutionId, JobId},
};
use schemas::{
    manifest::{AcceptedState, Fence},
    runner::{Artifact, Check, FailureReason, PlanV2, StateHead},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

pub use schemas::runner::SaltedDetails;

use super::cluster::Allowed;
use crate::{
    images::ImageSettings,
    isolation::{Sandbox, Trial},
    journal::Stop,
    policy::Policy,
    state::{self, KnownState, Reading, Remote, StateError, StateKeys, StateMark, StateStore},
};

/// Directories and services that one execution may use.
#[derive(Debug, Clone)]
pub struct JobContext {
    /// Work directory of this execution, empty at the start. Its content may be removed afterwards.
    pub work_dir: PathBuf,
    /// Directory with the state of each component of the install: `<state_dir>/<component>/…`.
    pub state_dir: PathBuf,
    /// OCI image layout of the install.
    pub artifacts_dir: PathBuf,
    /// Directory of the `stead-plugin-<name>` executables.
    pub plugin_dir: PathBuf,
    /// Plan files, by plan digest.
    pub plans_dir: PathBuf,
    /// Base environment of a child, to which the plugin and the manifest add. A child gets nothing
    /// else from the agent's own environment.
    pub env: BTreeMap<String, String>,
    /// Variables of the agent that locate its configuration of git, Helm and Docker, on a build runner
    /// only.
    pub git_env: BTreeMap<String, String>,
    /// Features that the customer allows in the kubeconfig of a component.
    pub kubeconfig_allows: Allowed,
    /// Redaction and log for tasks that run concurrently with the plugin.
    pub background: Arc<dyn Background>,
    /// Sandbox of every child. `None` at the level `process`.
    pub sandbox: Option<Sandbox>,
    /// Stop requests from the shim, caused by a cancel, the deadline or a stop.
    pub cancel: Cancel,
    /// OCI endpoint of the Runner listener.
    pub registry: Registry,
    /// Options of the runner about registries of images.
    pub images: ImageSettings,
    pub job: JobId,
    pub execution: ExecutionId,
    /// Rules of the customer for later jobs. Only a preflight has them.
    pub rules: Option<Rules>,
    /// Newest state of the component that this runner has seen.
    pub known_state: KnownState,
    /// Newest state of each other component whose state the job may read, that this runner has seen.
    pub known_states: BTreeMap<String, KnownState>,
    /// Keys of the states that the job may use. Absent for jobs without state.
    pub state: Option<StateAccess>,
    /// Loopback port on which the programs of the job reach the state. Absent for jobs without state.
    pub state_port: Option<Arc<TcpListener>>,
    /// SHA-256 of the manifest's payload bytes as they were received.
    pub manifest_digest: Digest,
    /// Digest of the inputs before the shim inserted sensitive values. `None` without any.
    pub unfilled_inputs: Option<Digest>,
}

/// Keys of the states that a job may use, and the fence with which it writes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StateAccess {
    /// Keys of the job's component, and of the components whose outputs the job uses.
    pub keys: StateKeys,
    /// Fence of the execution.
    pub fence: Fence,
}

impl JobContext {
    /// Returns the store of a component's state, with its keys if the job may use it.
    pub(crate) fn state_of(&self, component: &str) -> StateStore {
        let cipher = self.state.as_ref().and_then(|state| state.keys.component(component));
        StateStore::new(&self.state_dir, component).with_cipher(cipher)
    }

    /// Returns the outputs in the newest state of a component, also the sensitive ones. Empty
    /// without a state. Waits for the server, which may have a newer one than this host.
    pub(crate) async fn outputs_of(
        &self,
        component: &str,
    ) -> Result<BTreeMap<String, Value>, StateError> {
        let (store, registry) = (self.state_of(component), &self.registry);
        let unread = KnownState::default();
        let known = self.known_states.get(component).unwrap_or(&unread);
        let reading = Reading {
            remote: Remote::new(
                registry.http.clone(),
                &registry.base_url,
                &registry.token,
                component,
            ),
            known,
            background: self.background.as_ref(),
            cancel: &self.cancel,
        };
        let context = || format!("cannot read the state of {component}");
        let state = match &self.state {
            Some(_) => store.read_newest(&reading).await?,
            // Without keys, the server has no state of the install.
            None => store.read().map_err(StateError::io(context()))?,
        };
        state::outputs(state.as_deref().map(Vec::as_slice)).map_err(StateError::io(context()))
    }
}

/// Rules of the customer, which a preflight compares with the later jobs of its run.
#[derive(Debug, Clone)]
pub struct Rules {
    pub policy: Policy,
    /// Recorded public keys of the trusted publishers of plugins.
    pub publishers: Vec<String>,
    /// Where the host's support of a sandbox is tried.
    pub trial: Trial,
}

/// Two requests to stop: the first allows a grace period.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    /// Stop within the grace period.
    pub requested: CancellationToken,
    /// Stop now.
    pub forced: CancellationToken,
}

/// Access to `<base_url>/v2/<repository>/…`.
#[derive(Clone)]
pub struct Registry {
    /// Scheme, host and port of the Runner listener, without a trailing slash.
    pub base_url: String,
    /// Job token, sent as a bearer token.
    pub token: String,
    /// HTTP client with the runner's proxy and pinned certificates.
    pub http: reqwest::Client,
    /// Time without data after which a request is retried.
    pub idle_timeout: Duration,
    /// Receives why a request is retried.
    pub observer: Option<oci_registry::Observer>,
}

impl Registry {
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

/// Services of the shim for tasks that run concurrently with a plugin.
pub trait Background: std::fmt::Debug + Send + Sync {
    /// Registers a value to redact, before any process can print it.
    fn secret(&self, value: Zeroizing<String>);
    /// Adds a line of the runner to the job's log.
    fn line(&self, text: &str);
    /// Records in the journal that this version of a state is the newest one.
    fn state(&self, component: &str, head: &StateHead) -> io::Result<()>;
}

/// Stands in for the shim in tests without one.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct NoShim;

#[cfg(test)]
impl Background for NoShim {
    fn secret(&self, _: Zeroizing<String>) {}
    fn line(&self, _: &str) {}
    fn state(&self, _: &str, _: &StateHead) -> io::Result<()> {
        Ok(())
    }
}

/// Receiver of a plugin's output. The shim redacts, writes and journals it.
pub trait Sink: Send {
    /// Starts a phase of the work: `sync`, `init`, `plan` …. The recorder reports only the first 64
    /// phases of a job.
    fn phase(&mut self, name: &str);
    /// Receives one line of a child, without its newline.
    fn line(&mut self, stream: Stream, bytes: &[u8]);
    /// Records a child that leads a process group whose id is `pid`, and the signal that stops the
    /// child.
    fn child(&mut self, pid: u32, stop: Stop) -> io::Result<()>;
    /// Returns a text without secret values, as the log shows it. `None` if output is withheld, and
    /// from a sink without redaction.
    fn redacted(&mut self, _text: &str) -> Option<String> {
        None
    }
    /// Reports a plan that is on disk under its digest.
    fn plan(&mut self, plan: PlanRecord) -> io::Result<()>;
    /// Reports the outputs for other components, and the sensitive ones encrypted.
    fn outputs(
        &mut self,
        plain: Map<String, Value>,
        sensitive: Map<String, Value>,
    ) -> io::Result<()>;
    /// Reports the state that a plan read or an apply wrote, with its keyed digest.
    fn state(
        &mut self,
        component: &str,
        mark: &StateMark,
        digest: Option<String>,
    ) -> io::Result<()>;
    /// Records that a decision of the vendor about a state was accepted.
    fn state_accepted(&mut self, component: &str, accepted: &AcceptedState) -> io::Result<()>;
    /// Reports the checks of a preflight.
    fn checks(&mut self, checks: Vec<Check>) -> io::Result<()>;
    /// Reports a pushed artifact.
    fn artifact(&mut self, artifact: Artifact) -> io::Result<()>;
}

/// Origin of a line: a stream of a child, or the runner itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output; the log marks its lines with `o`.
    Out,
    /// Standard error; the log marks its lines with `e`.
    Err,
    /// The runner itself; the log marks its lines with `x`.
    Runner,
}

/// Planned changes of an apply. An approval covers `digest`.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRecord {
    /// Plan digest, computed from file, summary, manifest and tool.
    pub digest: Digest,
    /// SHA-256 of the plan file.
    pub file: Digest,
    /// Redacted summary. The plan digest covers its RFC 8785 bytes.
    pub summary: Value,
    /// SHA-256 of the RFC 8785 bytes of the summary.
    pub summary_digest: Digest,
    /// True if the plan has no changes.
    pub noop: bool,
    /// Number of resources to create. A replacement counts here and in `destroy`.
    pub add: u64,
    /// Number of resources to change in place.
    pub change: u64,
    /// Number of resources to remove.
    pub destroy: u64,
    /// Name and version, as in `terraform 1.11.4`.
    pub tool: String,
    /// Further digests that the plan digest covers.
    pub v2: PlanV2,
    /// Redacted details with the digest in `v2`. Absent if the plugin supplies none.
    pub details: Option<SaltedDetails>,
}

/// Result of a plugin that could do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    /// The tool failed, with its exit code or the signal that ended it. A timeout has neither.
    Failed {
        reason: FailureReason,
        exit_code: Option<i32>,
        signal: Option<i32>,
        detail: String,
    },
    /// The work was stopped on request. `forced` means that SIGKILL was sent.
    Cancelled {
        forced: bool,
    },
}

/// Reason why a plugin could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The manifest requests something that this plugin does not support, or is malformed.
    #[error("{0}")]
    Refused(String),
    /// The publisher did not sign the plugin, or signed another one.
    #[error("{0}")]
    Unverified(String),
    /// A tool is missing. The message names the tool to install.
    #[error("{0}")]
    ToolMissing(String),
    /// An artifact is unavailable or does not match its digest.
    #[error("{0}")]
    ArtifactUnavailable(String),
    /// The plan no longer matches its inputs.
    #[error("the plan is stale: {0}")]
    PlanStale(String),
    /// A plugin executable violated the protocol or failed.
    #[error("the plugin failed: {0}")]
    PluginFailed(String),
    #[error("cannot start {command}")]
    SpawnFailed { command: String, source: io::Error },
    /// The work took longer than allowed.
    #[error("{0}")]
    TimedOut(String),
    #[error("{context}")]
    Io { context: String, source: io::Error },
}

impl PluginError {
    /// Returns the failure reason for the report.
    pub fn reason(&self) -> FailureReason {
        match self {
            PluginError::Refused(_) | PluginError::Unverified(_) => FailureReason::Refused,
            PluginError::ToolMissing(_) => FailureReason::ToolMissing,
            PluginError::ArtifactUnavailable(_) => FailureReason::ArtifactUnavailable,
            PluginError::PlanStale(_) => FailureReason::PlanStale,
            PluginError::PluginFailed(_) => FailureReason::PluginFailed,
            PluginError::SpawnFailed { .. } => FailureReason::SpawnFailed,
            PluginError::TimedOut(_) => FailureReason::TimedOut,
            PluginError::Io { .. } => FailureReason::Internal,
        }
    }
}
