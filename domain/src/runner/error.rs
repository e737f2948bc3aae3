use super::{Identity, RunnerMode};

/// Reason to reject a runner command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunnerError {
    #[error("runner does not exist")]
    NotFound,
    #[error("cannot enrol the runner: the id belongs to another runner; use a new enrolment token")]
    AlreadyEnrolled,
    /// A runner in install mode has one install, and an encryption key for the secrets of the
    /// install.
    #[error(
        "cannot enrol the runner: a runner in install mode needs an install and an encryption key"
    )]
    InstallRequired,
    /// A build runner has no install and receives no secrets.
    #[error("cannot enrol the runner: a build runner has no install and no encryption key")]
    InstallNotAllowed,
    /// A replaced key may be compromised, so it is never accepted again.
    #[error("cannot replace the key: the runner had this key before; generate a new key")]
    KeyWasReplaced,
    /// A revocation is permanent.
    #[error("cannot change the runner: it was revoked; enrol a new runner with a new token")]
    Revoked,
}

impl Identity {
    pub(super) fn check(&self) -> Result<(), RunnerError> {
        let fields = (self.install.is_some(), self.encryption_key.is_some());
        match (self.mode, fields) {
            (RunnerMode::Install, (true, true)) | (RunnerMode::Build, (false, false)) => Ok(()),
            (RunnerMode::Install, (_, _)) => Err(RunnerError::InstallRequired),
            (RunnerMode::Build, (_, _)) => Err(RunnerError::InstallNotAllowed),
        }
    }
}
