//! Encryption of the state, rescues and plans of components.
use std::{fmt, io};

use domain::{
    digest::Digest,
    ids::{ExecutionId, InstallId, JobId},
};
use install_keys::{
    ComponentData, ComponentKeys, DigestUse, Error, Fence, InstallKeys, Of, Plan, Rescue, State,
};
use schemas::runner::StateHead;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Keys of the components that a job may read, for the order of its shim.
#[derive(Clone, Serialize, Deserialize)]
pub struct StateKeys {
    log_id: String,
    install: InstallId,
    of: Vec<ComponentKeys>,
}

/// Keys of one component, and the install that its data belongs to.
#[derive(Clone)]
pub struct Cipher {
    log_id: String,
    install: InstallId,
    keys: ComponentKeys,
}

impl StateKeys {
    /// Derives the keys of these components.
    pub fn derive<'c>(
        keys: &InstallKeys,
        log_id: &str,
        install: InstallId,
        components: impl IntoIterator<Item = &'c str>,
    ) -> Self {
        let of = components.into_iter().map(|component| keys.component(component)).collect();
        StateKeys { log_id: log_id.into(), install, of }
    }

    /// Returns the names of the components that the job may read.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.of.iter().map(ComponentKeys::component)
    }

    /// Returns the keys of a component, if the job may read it.
    pub fn component(&self, component: &str) -> Option<Cipher> {
        let keys = self.of.iter().find(|keys| keys.component() == component)?.clone();
        Some(Cipher { log_id: self.log_id.clone(), install: self.install, keys })
    }
}

impl fmt::Debug for StateKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateKeys").field("install", &self.install).finish_non_exhaustive()
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher").field("component", &self.keys.component()).finish_non_exhaustive()
    }
}

impl Cipher {
    fn of(&self) -> Of<'_> {
        Of { log_id: &self.log_id, install: self.install }
    }

    fn state<'a>(&'a self, head: &'a StateHead) -> ComponentData<'a> {
        ComponentData::State(State {
            of: self.of(),
            component: self.keys.component(),
            lineage: &head.lineage,
            serial: head.serial,
            fence: Fence { epoch: head.fence.epoch, position: head.fence.position },
        })
    }

    fn rescue(&self, execution: ExecutionId) -> ComponentData<'_> {
        let component = self.keys.component();
        ComponentData::Rescue(Rescue { of: self.of(), component, execution })
    }

    fn plan(&self, job: JobId, file: &Digest) -> ComponentData<'_> {
        let (component, sha256) = (self.keys.component(), file.bytes());
        ComponentData::Plan(Plan { of: self.of(), component, job, sha256 })
    }

    /// Returns the keyed digest of a state.
    pub fn digest(&self, state: &[u8]) -> String {
        self.keys.digest(DigestUse::Plaintext, state).to_string()
    }

    fn encrypt(&self, data: &ComponentData<'_>, plain: &[u8]) -> io::Result<Vec<u8>> {
        let encrypted = self.keys.encrypt(data, plain, &mut install_keys::os_rng());
        encrypted.map_err(io::Error::other)
    }

    /// Encrypts the state of this version.
    pub fn encrypt_state(&self, head: &StateHead, state: &[u8]) -> io::Result<Vec<u8>> {
        self.encrypt(&self.state(head), state)
    }

    /// Decrypts the state of exactly this version. A ciphertext of another version, component or
    /// install, and one that this install did not sign, is an error that names the cause.
    pub fn decrypt_state(
        &self,
        head: &StateHead,
        ciphertext: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, DecryptError> {
        let state = self.keys.decrypt(&self.state(head), ciphertext)?;
        let digest = head.digest.parse().map_err(|_| DecryptError::OtherContent)?;
        match self.keys.matches(&digest, DigestUse::Plaintext, &state) {
            true => Ok(state),
            false => Err(DecryptError::OtherContent),
        }
    }

    /// Encrypts a state that Terraform could not write.
    pub fn encrypt_rescue(&self, execution: ExecutionId, state: &[u8]) -> io::Result<Vec<u8>> {
        self.encrypt(&self.rescue(execution), state)
    }

    /// Decrypts a rescued state of this execution.
    pub fn decrypt_rescue(
        &self,
        execution: ExecutionId,
        ciphertext: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, DecryptError> {
        Ok(self.keys.decrypt(&self.rescue(execution), ciphertext)?)
    }

    /// Encrypts the plan file with this digest.
    pub fn encrypt_plan(&self, job: JobId, file: &Digest, plan: &[u8]) -> io::Result<Vec<u8>> {
        self.encrypt(&self.plan(job, file), plan)
    }

    /// Decrypts the plan file with this digest.
    pub fn decrypt_plan(
        &self,
        job: JobId,
        file: &Digest,
        ciphertext: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, DecryptError> {
        Ok(self.keys.decrypt(&self.plan(job, file), ciphertext)?)
    }
}

/// Reason why data cannot be decrypted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DecryptError {
    #[error(transparent)]
    Keys(#[from] Error),
    #[error("its content does not have the digest of its version")]
    OtherContent,
}
