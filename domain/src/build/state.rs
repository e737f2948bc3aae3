//! State of a build, folded from its events.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    artifact::Artifact,
    digest::Digest,
    ids::{AppId, ComponentId, JobId, RunId},
};

/// One attempt to turn a component's source into an artifact.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Build {
    /// Requested artifact; none before the request.
    pub request: Option<BuildRequest>,
    /// Lifecycle state.
    pub state: State,
    /// Runs that wait for the artifact.
    pub waiters: Vec<RunId>,
}

/// Artifact to build: the component, its source and its plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BuildRequest {
    /// App of the component.
    pub app: AppId,
    /// Component to build.
    pub component: ComponentId,
    /// Name of the component.
    pub component_name: String,
    /// Config version that requested the build first.
    pub config_version: u32,
    /// Digest of the source, a deterministic tar.
    pub source: Digest,
    /// Plugin that builds the component.
    pub kind: String,
}

/// Lifecycle state of a build.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub enum State {
    /// Does not exist yet.
    #[default]
    NotCreated,
    /// Requested, without a job.
    Requested,
    /// The job builds the artifact.
    Building { job: JobId },
    /// The artifact was built.
    Succeeded { artifact: Artifact },
    /// The build failed.
    Failed {
        /// Kind of failure.
        reason: BuildFailure,
        /// Explanation for users.
        detail: String,
    },
}

/// Reason that a build failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BuildFailure {
    /// The job failed.
    JobFailed,
    /// The job was cancelled.
    JobCancelled,
    /// The job was lost, so its result is unknown.
    JobLost,
    /// The job succeeded but reported no artifact.
    NoArtifact,
    /// The manifest cannot be rendered.
    RenderFailed,
}

impl BuildFailure {
    /// Text for users.
    pub fn text(self) -> &'static str {
        match self {
            BuildFailure::JobFailed => "job failed",
            BuildFailure::JobCancelled => "job cancelled",
            BuildFailure::JobLost => "job lost",
            BuildFailure::NoArtifact => "the job pushed no artifact",
            BuildFailure::RenderFailed => "cannot build",
        }
    }
}
