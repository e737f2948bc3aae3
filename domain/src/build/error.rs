//! Reasons to reject a build command.
use super::{Build, State};
use crate::ids::JobId;

/// Reason to reject a build command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BuildError {
    /// No build has this id.
    #[error("build does not exist")]
    NotFound,
    /// The id belongs to a build of another artifact.
    #[error("build was already requested with other values")]
    AlreadyRequested,
    /// A build has one job.
    #[error("build already has the job {job}")]
    JobAlreadyQueued {
        /// Existing job.
        job: JobId,
    },
    /// A build succeeds only through its job.
    #[error("build has no job yet")]
    NoJob,
    /// The outcome is final.
    #[error("build has already succeeded")]
    AlreadySucceeded,
    /// The outcome is final.
    #[error("build has already failed")]
    AlreadyFailed,
}

impl Build {
    pub(super) fn refusal(&self) -> BuildError {
        match &self.state {
            State::NotCreated => BuildError::NotFound,
            State::Requested => BuildError::NoJob,
            State::Building { job } => BuildError::JobAlreadyQueued { job: *job },
            State::Succeeded { .. } => BuildError::AlreadySucceeded,
            State::Failed { .. } => BuildError::AlreadyFailed,
        }
    }
}
