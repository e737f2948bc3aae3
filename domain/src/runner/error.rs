use super::{Identity, RunnerMode};
use crate::ids::RunnerId;

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
    /// Other keys need a new runner: a thief of the host must not be able to register own ones.
    #[error(
        "cannot replace the install's keys: the runner has reported others; restore keys/install of the runner from a \
         backup, or enrol a new runner with a new token"
    )]
    InstallKeysDiffer,
    /// The keys of a generation never change, and a generation never returns.
    #[error(
        "cannot recover the install: generation {generation} of the new keys is not later than the recorded generation \
         {recorded}; repeat the recovery"
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
         install's current runner, or ask the vendor for a token of `stead installs create-enrolment-token INSTALL \
         --recover-from RUNNER`"
    )]
    KeysWereReplaced,
    /// The vendor decided to recover the keys of another runner.
    #[error(
        "cannot recover the install: the enrolment token recovers the keys of {chosen}; recover the wrapped seed of that \
         runner, or ask the vendor for another token"
    )]
    NotChosen {
        /// Runner that the vendor chose.
        chosen: RunnerId,
    },
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
