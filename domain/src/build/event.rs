//! What can have happened to a build. The names are on disk: add, never rename.
use serde::{Deserialize, Serialize};

use super::{BuildFailure, Order};
use crate::{
    artifact::Artifact,
    decider::Event,
    ids::{JobId, RunId},
};

/// A fact about a build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BuildEvent {
    /// Somebody wants an artifact.
    Requested(Order),
    /// A job makes it.
    JobQueued {
        /// Which job.
        job: JobId,
    },
    /// It is made.
    Succeeded {
        /// The job that made it.
        job: JobId,
        /// What was made.
        artifact: Artifact,
    },
    /// It will not be made.
    Failed {
        /// The job that was to make it; none where none could be put together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<JobId>,
        /// What kind of failure.
        reason: BuildFailure,
        /// In words.
        detail: String,
    },
    /// A run waits for the artifact; it goes on when the build has ended.
    WaiterAdded {
        /// Which.
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
