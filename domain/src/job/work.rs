//! Work of a job, and the plan that a plan job reports.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{JobClass, JobKind};
use crate::{
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, InstallId, RunId, StepId},
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Work {
    pub kind: JobKind,
    /// Class of the work, which determines the handling of a lost execution.
    pub class: JobClass,
    /// Maximum number of attempts.
    pub attempts: u32,
    /// Digest of the signed manifest, which is stored as a blob.
    pub manifest: Digest,
    /// Build, source, run or step that the job belongs to.
    pub origin: Origin,
    /// Maximum duration of an execution, from its claim, in milliseconds.
    pub deadline_ms: u64,
    /// Maximum wait for a runner, in milliseconds.
    pub queue_ttl_ms: u64,
}

/// Build, source, run or step that a job belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Origin {
    /// Build of an artifact.
    Build {
        /// App of the component.
        app: AppId,
        /// Component to build.
        component: ComponentId,
        /// Build that waits for the job.
        build: BuildId,
    },
    /// Resolution of a git reference of a config version.
    Source {
        /// App of the config version.
        app: AppId,
        /// Config version that waits for the job.
        config_version: u32,
        /// Address of the repository, as in the config.
        repo: String,
        /// Branch, tag or commit id. `HEAD` is the default branch.
        #[serde(rename = "ref")]
        reference: String,
    },
    /// Preflight of a run.
    Preflight {
        /// Install of the run.
        install: InstallId,
        /// Run that waits for the job.
        run: RunId,
    },
    /// Step of a run.
    Step {
        /// Install of the run.
        install: InstallId,
        /// Run that the step belongs to.
        run: RunId,
        /// Step that waits for the job.
        step: StepId,
    },
}

/// Plan that a runner made, without the planned values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlanReport {
    /// Plan digest, which an approval covers. `proof::plan` defines its content.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Digest of the plan file, which stays on the runner.
    #[schema(value_type = String)]
    pub file: Digest,
    /// Digest of the redacted summary, which is stored as a blob of RFC 8785 JSON.
    #[schema(value_type = String)]
    pub summary: Digest,
    /// True if the plan has no changes.
    pub noop: bool,
    /// Number of resources to create.
    pub add: u64,
    /// Number of resources to change.
    pub change: u64,
    /// Number of resources to destroy.
    pub destroy: u64,
    /// Name and version of the tool that made the plan, for example `terraform 1.9.0`.
    pub tool: String,
    /// Ed25519 signature of `proof::plan::statement` by the runner's identity key, base64.
    pub signature: String,
    /// Further parts that a plan digest of version 2 covers. Absent for version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v2: Option<PlanV2>,
}

/// Parts that only a plan digest of version 2 covers.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlanV2 {
    /// Salted digest of the details, which the server stores encrypted. Absent without details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub details: Option<Digest>,
    /// Digest of the plugin: of its published artifact or its executable. Absent for a plugin that
    /// is built into the runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub plugin: Option<Digest>,
    /// Digest of the executable of the tool. Absent if the plugin is the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub tool: Option<Digest>,
}
