//! What to do, and who may do it now.
//!
//! Both travel as DSSE envelopes whose payload is RFC 8785 JSON. Whoever reads one verifies the bytes that
//! arrived and never writes them anew; a manifest's digest is the SHA-256 of its payload bytes.
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

/// What to do: everything that the runner needs to know, and no secret in clear.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Manifest {
    /// 1.
    pub version: u32,
    /// The job that this is for.
    #[schema(value_type = String)]
    pub job: JobId,
    /// What kind of work.
    pub kind: JobKind,
    /// What a silence means.
    pub class: JobClass,
    /// Who knows how.
    pub plugin: PluginRef,
    /// What may be pulled for it, by digest and nothing else.
    #[serde(default)]
    pub artifacts: Vec<ArtifactRef>,
    /// The plugin's own inputs, rendered; secrets are typed holes.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub inputs: Value,
    /// Variables of the child; the runner adds only a few of its own.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The role that the child works under, where the cloud knows roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What the child may use.
    pub limits: Limits,
    /// How long the child may take.
    pub timeouts: Timeouts,
    /// The approved plan's digest; an apply does this plan or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub plan: Option<Digest>,
    /// What the control plane knows of the component's state; the runner refuses an older one and one of another lineage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<KnownState>,
}

/// State of a component as the log has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnownState {
    /// The newest one that was reported or accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<StateVersion>,
    /// The last decision of a user to accept another state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<AcceptedState>,
}

/// A recorded decision: this state is right, whatever was known before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceptedState {
    /// The state.
    #[serde(flatten)]
    pub version: StateVersion,
    /// Number of the decision for this component, from 1.
    pub decision: u64,
}

/// The plugin that does the work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PluginRef {
    /// `terraform_module`, `action`, or the name of an executable plugin.
    pub name: String,
    /// The version of its contract.
    pub version: String,
    /// The executable's digest; absent for what is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub digest: Option<Digest>,
}

/// One thing that the registry hands out for this job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactRef {
    /// `<app>/<component>`, as in `/v2/<repository>/manifests/<digest>`.
    pub repository: String,
    /// The digest of the OCI manifest.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Bytes of the artifact.
    pub size: u64,
}

/// What the child may use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    /// Address space of the child and each of its children; absent: the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Log bytes that are kept, first part and last part together.
    pub output_bytes: u64,
}

/// How long the child may take, milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Timeouts {
    /// From the claim to the end.
    pub deadline_ms: u64,
    /// From SIGTERM to SIGKILL.
    pub grace_ms: u64,
    /// Silence after which the child is stopped; absent: it may be silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_output_ms: Option<u64>,
}

/// Who may execute a manifest now. A manifest without a grant for this runner and execution is nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// 1.
    pub version: u32,
    /// The log that holds the claim.
    pub log_id: String,
    /// The manifest's digest.
    #[schema(value_type = String)]
    pub manifest: Digest,
    /// The job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// The one execution that this permits.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// From 1.
    pub attempt: u32,
    /// The one runner that this permits.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Its identity key, 64 hexadecimal digits.
    pub runner_key: String,
    /// Grows with every claim; what is outside the control plane compares it.
    pub fence: Fence,
    /// When it was signed.
    #[serde(with = "moment")]
    pub issued_at: DateTime<Utc>,
    /// After this moment nothing may go on.
    #[serde(with = "moment")]
    pub deadline: DateTime<Utc>,
}

/// The epoch of the log and the position of `job.claimed`; ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Fence {
    /// Raised only by an operator after a restore.
    pub epoch: u64,
    /// Where the claim stands in the log.
    pub position: u64,
}
