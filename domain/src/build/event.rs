//! Events of a build. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use super::{BuildFailure, BuildRequest};
use crate::{
    artifact::Artifact,
    decider::Event,
    ids::{JobId, RunId},
};

/// Event of a build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BuildEvent {
    /// An artifact was requested.
    Requested(BuildRequest),
    /// The job of the build was queued.
    JobQueued {
        /// Job of the build.
        job: JobId,
    },
    /// The artifact was built.
    Succeeded {
        /// Job that built the artifact.
        job: JobId,
        /// Artifact that was built.
        artifact: Artifact,
    },
    /// The build failed.
    Failed {
        /// Job of the build; absent if its manifest could not be rendered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<JobId>,
        /// Kind of failure.
        reason: BuildFailure,
        /// Explanation for users.
        detail: String,
    },
    /// A run waits for the artifact and continues when the build has ended.
    WaiterAdded {
        /// Run that waits.
        run: RunId,
    },
}

impl Event for BuildEvent {
    fn name(&self) -> &'static str {
        match self {
            BuildEvent::Requested(_) => "build.requested",
            BuildEvent::JobQueued { .. } => "build.job_queued",
            BuildEvent::Succeeded { .. } => "build.succeeded",
            BuildEvent::Failed { .. } => "build.failed",
            BuildEvent::WaiterAdded { .. } => "build.waiter_added",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
