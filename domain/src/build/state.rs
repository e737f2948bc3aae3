//! State of a build, folded from its events.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    artifact::Artifact,
    digest::Digest,
    git::GitSource,
    ids::{AppId, ComponentId, JobId, RunId},
    image::ImageSource,
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Build {
    /// Request for the build. `None` before it is recorded.
    pub request: Option<BuildRequest>,
    pub state: State,
    /// Commit of the git source, after it was resolved.
    pub commit: Option<String>,
    pub waiters: Vec<RunId>,
}

/// Request to build the artifact of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BuildRequest {
    pub app: AppId,
    pub component: ComponentId,
    pub component_name: String,
    /// Config version that requested the build. A later version may use the same build.
    pub config_version: u32,
    /// Source of the component.
    pub source: BuildSource,
    /// Component type, which selects the plugin.
    pub kind: String,
}

/// Source of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BuildSource {
    /// Directory in the bundle.
    Bundle {
        /// Digest of the directory, packed as a deterministic tar.
        digest: Digest,
    },
    /// Directory of a git repository, at the commit of the config version.
    Git(GitSource),
    /// Image of an upstream registry.
    Image(ImageSource),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub enum State {
    #[default]
    NotCreated,
    Requested,
    /// The job is queued or running.
    Building {
        job: JobId,
    },
    Succeeded {
        artifact: Artifact,
    },
    Failed {
        reason: BuildFailure,
        /// Explanation of the failure for users.
        detail: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BuildFailure {
    /// The job failed. `detail` is the message of the job's failure.
    JobFailed,
    /// The job was cancelled on request.
    JobCancelled,
    /// The server declared the job lost.
    JobLost,
    /// The job succeeded but pushed no artifact.
    NoArtifact,
    /// The server cannot render the manifest of the job.
    RenderFailed,
    /// The reference of the git source cannot be resolved to a commit.
    SourceUnresolved,
}

impl BuildFailure {
    /// Returns a short description for users, without the detail.
    pub fn text(self) -> &'static str {
        match self {
            BuildFailure::JobFailed => "job failed",
            BuildFailure::JobCancelled => "job cancelled",
            BuildFailure::JobLost => "job lost",
            BuildFailure::NoArtifact => "the job pushed no artifact",
            BuildFailure::RenderFailed => "cannot build",
            BuildFailure::SourceUnresolved => "cannot resolve the git reference",
        }
    }
}
