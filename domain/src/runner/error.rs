use super::{Identity, RunnerMode};

/// Reason to reject a runner command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunnerError {
    #[error("runner does not exist")]
    NotFound,
    #[error("runner is already enrolled with other values")]
    AlreadyEnrolled,
    /// A runner in install mode has one install, and an encryption key for the secrets of the
    /// install.
    #[error("a runner of installs belongs to one install and needs its encryption key")]
    NeedsAnInstall,
    /// A build runner has no install and receives no secrets.
    #[error("a build runner belongs to no install and has no encryption key")]
    BelongsToNoInstall,
    /// A replaced key may be compromised, so it is never accepted again.
    #[error("key was replaced before: generate a new key")]
    KeyWasReplaced,
    /// A revocation is permanent.
    #[error("runner was revoked")]
    Revoked,
}

impl Identity {
    pub(super) fn check(&self) -> Result<(), RunnerError> {
        let bound = (self.install.is_some(), self.encryption_key.is_some());
        match (self.mode, bound) {
            (RunnerMode::Install, (true, true)) | (RunnerMode::Build, (false, false)) => Ok(()),
            (RunnerMode::Install, (_, _)) => Err(RunnerError::NeedsAnInstall),
            (RunnerMode::Build, (_, _)) => Err(RunnerError::BelongsToNoInstall),
        }
    }
}
