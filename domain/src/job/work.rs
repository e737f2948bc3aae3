//! What is to be done, as it was queued; and what came of it.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{JobClass, JobKind};
use crate::{
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, InstallId, RunId, StepId},
};

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Work {
    /// Kind of the work.
    pub kind: JobKind,
    /// Consequence of an unknown outcome.
    pub class: JobClass,
    /// How often it may be tried.
    pub attempts: u32,
    /// The signed manifest, a blob.
    pub manifest: Digest,
    /// What it is done for.
    pub origin: Origin,
    /// How long an execution may take, from its claim.
    pub deadline_ms: u64,
    /// How long it may wait for a runner.
    pub queue_ttl_ms: u64,
}

/// What a job is done for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Origin {
    /// An artifact.
    Build {
        /// Of which app.
        app: AppId,
        /// Of which component.
        component: ComponentId,
        /// The build that waits for it.
        build: BuildId,
    },
    /// A change of an install.
    Step {
        /// Of which install.
        install: InstallId,
        /// The run that orchestrates it.
        run: RunId,
        /// The step that waits for it.
        step: StepId,
    },
}

/// Plan that a runner made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlanReport {
    /// Digest that an approval covers: see `proof::plan`.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// The plan file, which stays on the runner.
    #[schema(value_type = String)]
    pub file: Digest,
    /// The redacted summary, a blob of RFC 8785 JSON.
    #[schema(value_type = String)]
    pub summary: Digest,
    /// Whether the plan has no changes.
    pub noop: bool,
    /// Number of resources to create.
    pub add: u64,
    /// Number of resources to change.
    pub change: u64,
    /// Number of resources to destroy.
    pub destroy: u64,
    /// Tool that planned, and its version.
    pub tool: String,
    /// Signature of `proof::plan::statement` by the identity key, base64 as in a DSSE envelope.
    pub signature: String,
}
