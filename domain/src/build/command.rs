//! Commands of a build, in the order of its lifecycle.
use super::{BuildFailure, BuildRequest};
use crate::{
    artifact::Artifact,
    ids::{JobId, RunId},
};

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum BuildCommand {
    /// Request an artifact.
    Request(BuildRequest),
    /// Attach the job of the build, which the same commit queues.
    QueueJob { job: JobId },
    /// Record that the job built the artifact.
    Succeed { artifact: Artifact },
    /// Record that the build failed.
    Fail {
        /// Kind of failure.
        reason: BuildFailure,
        /// Explanation for users.
        detail: String,
    },
    /// Add a run that waits for the artifact.
    AddWaiter { run: RunId },
}
