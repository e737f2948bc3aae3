use super::{Build, State};
use crate::ids::JobId;

/// Reason to reject a build command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BuildError {
    #[error("build does not exist")]
    NotFound,
    #[error("cannot request the build: the id belongs to a build with other values; use a new id")]
    AlreadyRequested,
    #[error("cannot queue a job: the build already has {job}")]
    JobAlreadyQueued { job: JobId },
    #[error("cannot complete the build: it has no job yet; queue its job first")]
    NoJob,
    #[error("cannot change the build: it has already succeeded")]
    AlreadySucceeded,
    #[error("cannot change the build: it has already failed; retry the build")]
    AlreadyFailed,
}

impl Build {
    pub(super) fn rejection(&self) -> BuildError {
        match &self.state {
            State::NotCreated => BuildError::NotFound,
            State::Requested => BuildError::NoJob,
            State::Building { job } => BuildError::JobAlreadyQueued { job: *job },
            State::Succeeded { .. } => BuildError::AlreadySucceeded,
            State::Failed { .. } => BuildError::AlreadyFailed,
        }
    }
}
