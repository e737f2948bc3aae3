//! What we know of a build.
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
    /// What is to be made. Nothing before it is requested.
    pub order: Option<Order>,
    /// Where it is.
    pub state: State,
    /// Runs that wait for the artifact.
    pub awaited_by: Vec<RunId>,
}

/// What is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Order {
    /// Of which app.
    pub app: AppId,
    /// Of which component.
    pub component: ComponentId,
    /// Its name.
    pub component_name: String,
    /// The config version that asks for it first.
    pub config_version: u32,
    /// Of the source, a deterministic tar.
    pub source: Digest,
    /// The plugin that makes it.
    pub kind: String,
}

/// Where a build is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub enum State {
    /// Nowhere yet.
    #[default]
    Unborn,
    /// It has no job yet.
    Requested,
    /// A job makes it.
    Building {
        /// Which.
        job: JobId,
    },
    /// It is made.
    Succeeded {
        /// What was made.
        artifact: Artifact,
    },
    /// It will not be made.
    Failed {
        /// What kind of failure.
        reason: BuildFailure,
        /// In words.
        detail: String,
    },
}

/// Why a build made nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BuildFailure {
    /// The work said so.
    JobFailed,
    /// The work was cancelled.
    JobCancelled,
    /// Nobody can say what became of the work.
    JobLost,
    /// The work ended well, and made nothing.
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
