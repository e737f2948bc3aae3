use super::{Build, State};
use crate::ids::JobId;

/// Reason to reject a build command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BuildError {
    #[error("build does not exist")]
    NotFound,
    #[error("build was already requested with other values")]
    AlreadyRequested,
    #[error("build already has the job {job}")]
    JobAlreadyQueued { job: JobId },
    #[error("build has no job yet")]
    NoJob,
    #[error("build has already succeeded")]
    AlreadySucceeded,
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
