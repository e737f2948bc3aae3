//! Why a runner says no, in the words of the business.
use super::{Identity, RunnerMode};

/// Why a runner says no.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunnerError {
    /// Nothing enrolled under this id.
    #[error("runner does not exist")]
    NotFound,
    /// The same id for another agent.
    #[error("runner is already enrolled, with other values")]
    AlreadyEnrolled,
    /// It is bound to exactly one.
    #[error("a runner of installs belongs to one install and needs its encryption key")]
    NeedsAnInstall,
    /// It is bound to none.
    #[error("a build runner belongs to no install and has no encryption key")]
    BelongsToNoInstall,
    /// Whoever has a key that was replaced must not get in by it again.
    #[error("runner had this key before; it needs a new one")]
    KeyWasReplaced,
    /// It is never heard again.
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
