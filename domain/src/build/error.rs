//! Why a build says no, in the words of the business.
use super::{Build, State};
use crate::ids::JobId;

/// Why a build says no.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BuildError {
    /// Nothing was requested under this id.
    #[error("build does not exist")]
    NotFound,
    /// The same id for another artifact.
    #[error("build is already requested, of something else")]
    AlreadyRequested,
    /// One job makes it.
    #[error("build is already made by {job}")]
    HasAJob {
        /// The job.
        job: JobId,
    },
    /// Without a job nobody can have made anything.
    #[error("build has no job yet")]
    NoJob,
    /// An outcome never changes.
    #[error("build has already succeeded")]
    AlreadySucceeded,
    /// An outcome never changes.
    #[error("build has already failed")]
    AlreadyFailed,
}

impl Build {
    pub(super) fn refusal(&self) -> BuildError {
        match &self.state {
            State::Unborn => BuildError::NotFound,
            State::Requested => BuildError::NoJob,
            State::Building { job } => BuildError::HasAJob { job: *job },
            State::Succeeded { .. } => BuildError::AlreadySucceeded,
            State::Failed { .. } => BuildError::AlreadyFailed,
        }
    }
}
