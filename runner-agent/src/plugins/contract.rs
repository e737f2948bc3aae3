//! The words between a shim and a plugin.

use std::{collections::BTreeMap, io, path::PathBuf, time::Duration};

use domain::{
    digest::Digest,
    ids::{ExecutionId, JobId},
};
use schemas::{
    manifest::AcceptedState,
    runner::{Artifact, FailureReason},
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{
    journal::Stop,
    state::{KnownState, StateMark},
};

/// Where one execution works and what it may use. Every directory exists and belongs to the runner.
#[derive(Debug, Clone)]
pub struct JobContext {
    /// Of this execution alone, empty at the start; its bytes may be removed afterwards.
    pub work_dir: PathBuf,
    /// Of the install: `<state_dir>/<component>/…`, kept as long as the install.
    pub state_dir: PathBuf,
    /// The install's own OCI image layout.
    pub artifacts_dir: PathBuf,
    /// Where `stead-plugin-<name>` executables are.
    pub plugin_dir: PathBuf,
    /// Plan files, by plan digest.
    pub plans_dir: PathBuf,
    /// The whole environment of a child but for what the plugin and the manifest add. Nothing of
    /// the agent's own environment reaches a child unless it is in here.
    pub env: BTreeMap<String, String>,
    /// In front of every command, to put it into a sandbox or under a limit; empty for none.
    pub wrapper: Vec<String>,
    /// Raised by the shim: cancel, deadline, stop.
    pub cancel: Cancel,
    /// The Runner listener's OCI endpoint.
    pub registry: Registry,
    /// Whose work this is.
    pub job: JobId,
    /// The attempt.
    pub execution: ExecutionId,
    /// Newest state of the component that this runner has seen.
    pub known_state: KnownState,
    /// SHA-256 of the manifest's payload bytes as they were received.
    pub manifest_digest: Digest,
}

/// Two requests to stop: the first is patient.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    /// Stop, but let the child write down what it has done.
    pub asked: CancellationToken,
    /// Stop now.
    pub forced: CancellationToken,
}

/// How to reach `<base_url>/v2/<repository>/…`.
#[derive(Clone)]
pub struct Registry {
    /// Scheme, host and port of the Runner listener, without a slash at the end.
    pub base_url: String,
    /// The job token, sent as a bearer.
    pub token: String,
    /// Has the runner's proxy and pinned certificates.
    pub http: reqwest::Client,
    /// For how long it may say nothing until it is asked again.
    pub patience: Duration,
}

impl Registry {
    /// The patience of a runner.
    pub const PATIENCE: Duration = Duration::from_secs(60);
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

/// What a plugin tells while it works. The shim redacts, writes and journals.
pub trait Sink: Send {
    /// A new part of the work: `sync`, `init`, `plan` …; never more than 60 in one job.
    fn phase(&mut self, name: &str);
    /// One line of a child, without its newline.
    fn line(&mut self, stream: Stream, bytes: &[u8]);
    /// A child has started; it leads a process group of the same number, and is stopped like this.
    fn child(&mut self, pid: u32, stop: Stop) -> io::Result<()>;
    /// A plan is on disk under its digest.
    fn plan(&mut self, plan: PlanRecord) -> io::Result<()>;
    /// What the work gives to what comes after it. Nothing sensitive.
    fn outputs(&mut self, outputs: Map<String, Value>) -> io::Result<()>;
    /// State that a plan is made from, or that an apply wrote.
    fn state(&mut self, component: &str, mark: &StateMark) -> io::Result<()>;
    /// A decision of the vendor about a state was taken.
    fn state_accepted(&mut self, component: &str, accepted: &AcceptedState) -> io::Result<()>;
    /// An artifact was pushed.
    fn artifact(&mut self, artifact: Artifact) -> io::Result<()>;
}

/// Which of a child's streams, or the runner's own voice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output: `o`.
    Out,
    /// Standard error: `e`.
    Err,
    /// The runner: `x`.
    Runner,
}

/// What an apply would change. The approval is on `digest`.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRecord {
    /// The plan digest: file, summary, manifest and tool.
    pub digest: Digest,
    /// SHA-256 of the plan file.
    pub file: Digest,
    /// Redacted; RFC 8785 bytes of this are what the plan digest covers.
    pub summary: Value,
    /// SHA-256 of those bytes.
    pub summary_digest: Digest,
    /// Nothing would change.
    pub noop: bool,
    /// Resources that would be made; a replacement counts here and in `destroy`.
    pub add: u64,
    /// Resources that would be changed in place.
    pub change: u64,
    /// Resources that would be removed.
    pub destroy: u64,
    /// Name and version, as in `terraform 1.11.4`.
    pub tool: String,
}

/// How the work ended when the plugin could do its part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All done.
    Succeeded,
    /// The tool said no: its exit code, or the signal that ended it.
    Failed { reason: FailureReason, exit_code: Option<i32>, signal: Option<i32>, detail: String },
    /// Stopped because it was asked to; `forced` when patience ran out.
    Cancelled { forced: bool },
}

/// Why a plugin could not do its part.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The manifest asks for something this plugin does not do, or is malformed for it.
    #[error("{0}")]
    Refused(String),
    /// Says what to install.
    #[error("{0}")]
    ToolMissing(String),
    /// An artifact could not be had, or is not what its digest says.
    #[error("{0}")]
    ArtifactUnavailable(String),
    /// What the plan was made from is not what is there now.
    #[error("the plan is stale: {0}")]
    PlanStale(String),
    /// A plugin executable broke the protocol or gave up.
    #[error("the plugin failed: {0}")]
    PluginFailed(String),
    /// A command could not be started.
    #[error("{command} could not be started")]
    SpawnFailed { command: String, source: io::Error },
    /// It took longer than allowed.
    #[error("{0}")]
    TimedOut(String),
    /// The runner's own disk or the like.
    #[error("{context}")]
    Io { context: String, source: io::Error },
}

impl PluginError {
    /// What to report.
    pub fn reason(&self) -> FailureReason {
        match self {
            PluginError::Refused(_) => FailureReason::Refused,
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
