//! Manifests and grants: the work of a job, and the permission to execute it.
//!
//! Both travel as DSSE envelopes with an RFC 8785 JSON payload. A reader verifies the received
//! bytes and never serializes them again. The digest of a manifest is the SHA-256 of its payload
//! bytes.
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
pub use domain::state_version::StateVersion;
use domain::{
    digest::Digest,
    ids::{ExecutionId, JobId, RunnerId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    moment,
    runner::{JobClass, JobKind},
};

/// DSSE payload type of a manifest.
pub const MANIFEST_TYPE: &str = "application/vnd.stead.manifest.v1+json";
/// DSSE payload type of a grant.
pub const GRANT_TYPE: &str = "application/vnd.stead.grant.v1+json";

/// Work of one job: everything that the runner needs. A manifest has no secret in plain text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Manifest {
    /// Format version, always 1.
    pub version: u32,
    /// Id of the job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Kind of the job.
    pub kind: JobKind,
    /// Class of the job. It determines the effect of a lost execution.
    pub class: JobClass,
    /// Plugin that does the work.
    pub plugin: PluginRef,
    /// Artifacts that the runner may pull for the job, each by digest.
    #[serde(default)]
    pub artifacts: Vec<ArtifactRef>,
    /// Rendered inputs of the plugin. A typed reference stands in place of each secret.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub inputs: Value,
    /// Environment variables of the child process. The runner adds only a few of its own.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Cloud role that the child process assumes. Absent where the cloud has no roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Resource limits of the child process.
    pub limits: Limits,
    /// Timeouts of the child process.
    pub timeouts: Timeouts,
    /// Digest of the approved plan. An apply executes exactly this plan or fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub plan: Option<Digest>,
    /// State of the component that the control plane knows. The runner refuses an older state or
    /// another lineage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<KnownState>,
}

/// State of a component, as the log records it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnownState {
    /// Newest version that a runner reported or a user accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<StateVersion>,
    /// Latest decision of a user to accept another state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<AcceptedState>,
}

/// Decision of a user that a state is correct, even if a newer state or one of another lineage was
/// known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceptedState {
    /// Accepted version.
    #[serde(flatten)]
    pub version: StateVersion,
    /// Number of the decision for this component, from 1.
    pub decision: u64,
}

/// Plugin that does the work of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PluginRef {
    /// Name: `terraform_module`, `action`, or the name of an executable plugin.
    pub name: String,
    /// Version of the plugin contract.
    pub version: String,
    /// Digest of the executable. Absent for a built-in plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub digest: Option<Digest>,
}

/// Artifact that the registry serves for a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactRef {
    /// Repository, `<app>/<component>`, as in `/v2/<repository>/manifests/<digest>`.
    pub repository: String,
    /// Digest of the OCI manifest.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Size of the artifact in bytes.
    pub size: u64,
}

/// Resource limits of a child process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    /// Address space of the child process and of each descendant, in bytes. Absent: the limit of
    /// the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Maximum number of stored log bytes, beginning and end of the log together.
    pub output_bytes: u64,
}

/// Timeouts of a child process, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Timeouts {
    /// Time from the claim to the end, in milliseconds.
    pub deadline_ms: u64,
    /// Time between SIGTERM and SIGKILL, in milliseconds.
    pub grace_ms: u64,
    /// Time without output after which the runner stops the child process, in milliseconds. Absent:
    /// no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_output_ms: Option<u64>,
}

/// Permission for one runner to execute one manifest once. Without a grant for its runner and
/// execution, a manifest permits nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// Format version, always 1.
    pub version: u32,
    /// Id of the log that contains the claim.
    pub log_id: String,
    /// Digest of the manifest.
    #[schema(value_type = String)]
    pub manifest: Digest,
    /// Id of the job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Id of the only permitted execution.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Id of the only permitted runner.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Identity key of the runner, 64 hexadecimal digits.
    pub runner_key: String,
    /// Fence, greater for every later claim. Systems outside the control plane compare it.
    pub fence: Fence,
    /// Time when the grant was signed.
    #[serde(with = "moment")]
    pub issued_at: DateTime<Utc>,
    /// Deadline. After it, the execution must have stopped.
    #[serde(with = "moment")]
    pub deadline: DateTime<Utc>,
}

/// Fencing token: epoch of the log and position of `job.claimed`, compared in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Fence {
    /// Epoch of the log. Only an operator raises it, after a restore.
    pub epoch: u64,
    /// Position of the claim in the log.
    pub position: u64,
}
