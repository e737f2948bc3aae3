//! Events of a build. Their names and payloads are stored: from the first release on, add and never rename.
use serde::{Deserialize, Serialize};

use super::{BuildFailure, Order};
use crate::{
    artifact::Artifact,
    decider::Event,
    ids::{JobId, RunId},
};

/// An event of a build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BuildEvent {
    /// An artifact was requested.
    Requested(Order),
    /// A job was queued to build it.
    JobQueued {
        /// The job.
        job: JobId,
    },
    /// The build succeeded.
    Succeeded {
        /// The job that built it.
        job: JobId,
        /// The artifact.
        artifact: Artifact,
    },
    /// The build failed.
    Failed {
        /// The job; absent if its manifest could not be rendered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<JobId>,
        /// Kind of failure.
        reason: BuildFailure,
        /// Description of the failure.
        detail: String,
    },
    /// A run waits for the artifact and continues when the build ends.
    WaiterAdded {
        /// The run.
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
