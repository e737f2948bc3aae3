//! What is to be done, as it was queued; and what came of it.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, InstallId, RunId, StepId},
};

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Work {
    /// What a runner must be able to do.
    pub kind: JobKind,
    /// What may be done when nobody knows what became of it.
    pub class: Class,
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

/// What a runner must be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Turn a component's source into an artifact.
    Build,
    /// Find out what an apply would change.
    Plan,
    /// Change it.
    Apply,
    /// Run a vendor's script.
    Action,
}

/// What may be done when nobody knows what became of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Safe to repeat: plan, sync, health, build.
    Pure,
    /// Its outcome can be probed: terraform apply, helm upgrade.
    Mutating,
    /// As mutating, and only a principal may resolve it: scripts, break glass.
    Unsafe,
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

/// What an apply would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlanReport {
    /// The plan digest: what an approval is about.
    pub digest: Digest,
    /// The plan file, which stays with the runner.
    pub file: Digest,
    /// The redacted summary, a blob.
    pub summary: Digest,
    /// Whether nothing would change.
    pub noop: bool,
    /// Resources to be made.
    pub add: u64,
    /// Resources to be changed.
    pub change: u64,
    /// Resources to be destroyed.
    pub destroy: u64,
    /// The tool that planned, and its version.
    pub tool: String,
    /// The runner's signature of the plan digest, base64.
    pub signature: String,
}

impl JobKind {
    /// As it is written everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            JobKind::Build => "build",
            JobKind::Plan => "plan",
            JobKind::Apply => "apply",
            JobKind::Action => "action",
        }
    }
}

impl Class {
    /// As it is written everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Pure => "pure",
            Class::Mutating => "mutating",
            Class::Unsafe => "unsafe",
        }
    }
}
