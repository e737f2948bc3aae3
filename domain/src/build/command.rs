use super::{BuildFailure, BuildRequest};
use crate::{
    artifact::Artifact,
    ids::{BuildId, JobId, RunId},
};

/// Commands of a build, in the order of its lifecycle.
#[derive(Debug, Clone, PartialEq)]
pub enum BuildCommand {
    Request(BuildRequest),
    /// Record the job of the build. The same commit queues the job.
    QueueJob {
        job: JobId,
        /// Commit of the git source. `None` for a source in the bundle.
        commit: Option<String>,
    },
    /// Use the artifact of an earlier build of the same commit, directory and component type.
    ReuseArtifact {
        /// Earlier build.
        build: BuildId,
        commit: String,
        artifact: Artifact,
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
