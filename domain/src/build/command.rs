use super::{BuildFailure, BuildRequest};
use crate::{
    artifact::Artifact,
    ids::{JobId, RunId},
};

/// Commands of a build, in the order of its lifecycle.
#[derive(Debug, Clone, PartialEq)]
pub enum BuildCommand {
    Request(BuildRequest),
    /// Record the job of the build. The same commit queues the job.
    QueueJob {
        job: JobId,
    },
    /// Record the artifact of the job.
    Succeed {
        artifact: Artifact,
    },
    Fail {
        reason: BuildFailure,
        detail: String,
    },
    /// Add a run that waits for the end of the build.
    AddWaiter {
        run: RunId,
    },
}
