//! Reasons to reject a runner command.
use super::{Identity, RunnerMode};

/// Reason to reject a runner command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunnerError {
    /// No runner has this id.
    #[error("runner does not exist")]
    NotFound,
    /// The id belongs to another runner.
    #[error("runner is already enrolled with other values")]
    AlreadyEnrolled,
    /// A runner of an install is bound to exactly one install.
    #[error("a runner of installs belongs to one install and needs its encryption key")]
    NeedsAnInstall,
    /// A build runner is bound to no install.
    #[error("a build runner belongs to no install and has no encryption key")]
    BelongsToNoInstall,
    /// A replaced key is not accepted again, because it may be compromised.
    #[error("key was replaced before: generate a new key")]
    KeyWasReplaced,
    /// A revoked runner is not accepted again.
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
