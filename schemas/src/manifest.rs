//! Manifests and grants: the work of a job, and the permission to execute it.
//!
//! Each document is the RFC 8785 JSON payload of a DSSE envelope. A reader verifies the received
//! bytes and never serializes them again. The digest of a manifest is the SHA-256 of its payload.
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
    secret::SecretReference,
};

/// DSSE payload type of a manifest.
pub const MANIFEST_TYPE: &str = "application/vnd.stead.manifest.v1+json";
/// DSSE payload type of a manifest with secret references. Runners that cannot insert sensitive
/// values refuse it.
pub const MANIFEST_V2_TYPE: &str = "application/vnd.stead.manifest.v2+json";
/// DSSE payload type of a grant.
pub const GRANT_TYPE: &str = "application/vnd.stead.grant.v1+json";

/// Work of one job, with everything that the runner needs. A manifest contains no secret in plain
/// text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Manifest {
    /// Format version, always 1.
    pub version: u32,
    /// Id of the job: `job_` and a ULID.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Kind of the job.
    pub kind: JobKind,
    /// Class of the job, which determines the handling of a lost execution.
    pub class: JobClass,
    /// Plugin that does the work.
    pub plugin: PluginRef,
    /// Artifacts that the runner may pull for the job.
    #[serde(default)]
    pub artifacts: Vec<ArtifactRef>,
    /// Rendered inputs of the plugin, as a JSON object. A typed reference replaces each secret.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub inputs: Value,
    /// Environment variables of the child process, by name. The runner adds further variables, for
    /// example `PATH` and `TMPDIR`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Cloud role that the child process assumes. Absent if the job uses no role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Resource limits of the child process.
    pub limits: Limits,
    /// Deadline and timeouts of the execution.
    pub timeouts: Timeouts,
    /// Plan digest that was approved. The apply executes exactly this plan or fails. Absent for
    /// other kinds of jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub plan: Option<Digest>,
    /// State version of the component that the server knows. The runner refuses an older state or
    /// another lineage. Absent if no version is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<KnownState>,
    /// Places in which the runner inserts sensitive values: sorted by pointer and start, without
    /// overlap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretReference>,
}

impl Manifest {
    /// Returns the DSSE payload type of this manifest.
    pub fn payload_type(&self) -> &'static str {
        if self.secrets.is_empty() { MANIFEST_TYPE } else { MANIFEST_V2_TYPE }
    }
}

/// Known state version of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnownState {
    /// Last version that was recorded or accepted. Absent after the component was destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<StateVersion>,
    /// Last decision of a user to accept a version. Absent without a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<AcceptedState>,
}

/// Decision of a user to accept a state version, even if a newer state or a state of another
/// lineage was known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceptedState {
    /// Lineage and serial of the accepted state.
    #[serde(flatten)]
    pub version: StateVersion,
    /// Number of the decision among the decisions for this component, from 1.
    pub decision: u64,
}

/// Plugin that does the work of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PluginRef {
    /// Name of the plugin: `terraform_module` or `action` for a built-in plugin, otherwise the name
    /// of an executable plugin.
    pub name: String,
    /// Version of the plugin protocol, or of a plugin that the config version pins.
    pub version: String,
    /// SHA-256 of an executable in the plugin directory of the runner. Absent for a built-in plugin
    /// and for a published one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub digest: Option<Digest>,
    /// Published artifact of the plugin. Absent for a built-in plugin, and for an executable that
    /// the customer installs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<PluginArtifact>,
}

/// Published plugin in the server's registry: an OCI index with one manifest per platform.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PluginArtifact {
    /// Repository in the server's registry.
    pub repository: String,
    /// Digest of the OCI index.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Total size in bytes: the index, its manifests and their blobs.
    pub size: u64,
    /// Public key that signed the executables, 64 hexadecimal digits. The runner must trust it.
    pub publisher: String,
}

/// Artifact in the server's registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactRef {
    /// Repository in the server's registry, `<app>/<component>`.
    pub repository: String,
    /// Digest of the OCI manifest.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Total size in bytes: the OCI manifest and the blobs that it references.
    pub size: u64,
}

/// Resource limits of a child process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    /// Maximum address space of the child process, and of each descendant, in bytes. Absent: the
    /// limit of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Maximum size of the stored log in bytes, for beginning and end together.
    pub output_bytes: u64,
}

/// Deadline and timeouts of an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Timeouts {
    /// Maximum duration from the claim to the end of the execution, in milliseconds.
    pub deadline_ms: u64,
    /// Grace period between SIGTERM and SIGKILL, in milliseconds.
    pub grace_ms: u64,
    /// Time without output after which the runner stops the child process, in milliseconds. Absent:
    /// no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_output_ms: Option<u64>,
}

/// Permission for one runner to execute one manifest once. A manifest without a grant permits
/// nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// Format version, always 1.
    pub version: u32,
    /// Id of the log that contains the claim, a ULID.
    pub log_id: String,
    /// Digest of the only permitted manifest.
    #[schema(value_type = String)]
    pub manifest: Digest,
    /// Id of the job: `job_` and a ULID.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Id of the only permitted execution: `exe_` and a ULID.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Id of the only permitted runner: `rnr_` and a ULID.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Identity key of the runner at the claim, 64 hexadecimal digits.
    pub runner_key: String,
    /// Fencing token, greater for every later claim. Systems outside the control plane can compare
    /// it to reject an earlier execution.
    pub fence: Fence,
    /// Time when the server signed the grant.
    #[serde(with = "moment")]
    pub issued_at: DateTime<Utc>,
    /// Time by which the execution must end.
    #[serde(with = "moment")]
    pub deadline: DateTime<Utc>,
}

/// Fencing token. Comparison considers the epoch first, then the position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Fence {
    /// Epoch of the log. Only an operator raises it, after the log was restored or moved.
    pub epoch: u64,
    /// Log position of the event `job.claimed`.
    pub position: u64,
}
