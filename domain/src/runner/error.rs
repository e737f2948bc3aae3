use super::{Identity, RunnerMode};

/// Reason to reject a runner command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunnerError {
    #[error("runner does not exist")]
    NotFound,
    #[error("cannot enrol the runner: the id belongs to another runner; use a new enrolment token")]
    AlreadyEnrolled,
    /// A runner in install mode has one install, and the keys of the install.
    #[error(
        "cannot enrol the runner: a runner in install mode needs an install and the install's public keys"
    )]
    InstallRequired,
    /// A build runner has no install and receives no secrets.
    #[error("cannot record the runner's keys: a build runner has no install and no install keys")]
    InstallNotAllowed,
    /// A replaced key may be compromised, so it is never accepted again.
    #[error("cannot replace the key: the runner had this key before; generate a new key")]
    KeyWasReplaced,
    /// The keys of a generation never change, and a generation never returns.
    #[error(
        "cannot replace the install's keys: generation {generation} is not later than the recorded generation {recorded}; \
         restore keys/install of the runner from a backup"
    )]
    GenerationNotLater {
        /// Generation of the reported keys.
        generation: u32,
        /// Generation of the recorded keys.
        recorded: u32,
    },
    /// A recovery names the runner whose keys it recovered.
    #[error(
        "cannot recover the install: the former runner is not one of this install, or never reported its keys; recover \
         the wrapped seed of this install"
    )]
    NoFormerKeys,
    /// A thief may have the replaced keys.
    #[error(
        "cannot recover the install: other keys have replaced those of the former runner; recover the wrapped seed of the \
         install's current runner"
    )]
    KeysWereReplaced,
    /// A revocation is permanent.
    #[error("cannot change the runner: it was revoked; enrol a new runner with a new token")]
    Revoked,
}

impl Identity {
    pub(super) fn check(&self) -> Result<(), RunnerError> {
        let fields = (self.install.is_some(), self.install_keys.is_some());
        match (self.mode, fields) {
            (RunnerMode::Install, (true, true)) | (RunnerMode::Build, (false, false)) => Ok(()),
            (RunnerMode::Install, (_, _)) => Err(RunnerError::InstallRequired),
            (RunnerMode::Build, (_, _)) => Err(RunnerError::InstallNotAllowed),
        }
    }
}
