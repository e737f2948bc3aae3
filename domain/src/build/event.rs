//! Events of a build. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use super::{BuildFailure, BuildRequest};
use crate::{
    artifact::Artifact,
    decider::Event,
    ids::{BuildId, JobId, RunId},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BuildEvent {
    /// A config version requested the artifact of a component.
    Requested(BuildRequest),
    /// The server queued the job of the build.
    JobQueued {
        job: JobId,
        /// Commit of the git source: 40 hexadecimal digits. Absent for a source in the bundle.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        commit: Option<String>,
    },
    /// The build ended without a job: an earlier build had the same commit, directory and component
    /// type.
    ArtifactReused {
        /// Earlier build.
        build: BuildId,
        /// Commit of the git source: 40 hexadecimal digits.
        commit: String,
        /// Artifact of the earlier build.
        artifact: Artifact,
    },
    /// The job pushed the artifact to the registry.
    Succeeded { job: JobId, artifact: Artifact },
    /// The build ended without an artifact.
    Failed {
        /// Job of the build. Absent if the server could not render its manifest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<JobId>,
        /// Stable code of the failure.
        reason: BuildFailure,
        /// Explanation of the failure for users.
        detail: String,
    },
    /// A run waits for the artifact. A policy continues the run after the end of the build.
    WaiterAdded { run: RunId },
}

impl Event for BuildEvent {
    fn name(&self) -> &'static str {
        match self {
            BuildEvent::Requested(_) => "build.requested",
            BuildEvent::JobQueued { .. } => "build.job_queued",
            BuildEvent::ArtifactReused { .. } => "build.artifact_reused",
            BuildEvent::Succeeded { .. } => "build.succeeded",
            BuildEvent::Failed { .. } => "build.failed",
            BuildEvent::WaiterAdded { .. } => "build.waiter_added",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
