//! What can be asked of a build, in the order of its life.
use super::{BuildFailure, Order};
use crate::{
    artifact::Artifact,
    ids::{JobId, RunId},
};

/// A request that may be refused.
#[derive(Debug, Clone, PartialEq)]
pub enum BuildCommand {
    /// Ask for an artifact.
    Request(Order),
    /// Name the job that makes it; it is queued in the same commit.
    QueueJob {
        /// The job.
        job: JobId,
    },
    /// The job made it.
    Succeed {
        /// What it made.
        artifact: Artifact,
    },
    /// It will not be made.
    Fail {
        /// What kind of failure.
        reason: BuildFailure,
        /// In words.
        detail: String,
    },
    /// A run waits for the artifact.
    AddWaiter {
        /// Which.
        run: RunId,
    },
}
