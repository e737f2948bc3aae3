//! Three Ed25519 signing keys of the server, stored outside the database, so that access to the
//! database does not allow signing.
//!
//! | key | signs |
//! |---|---|
//! | tokens | access tokens of runners, job tokens |
//! | manifests | manifests, grants, and the list of the public keys |
//! | checkpoints | tree heads of the log |
//!
//! The enrol command gives a runner the fingerprint of the manifest key. The runner learns the
//! other keys from the list that this key signs. A replaced key stays in the list with the time at
//! which it expires. Former manifest keys also sign the list, so a runner that knows only a former
//! key can trust the new one.
pub mod publisher;
mod rotate;
mod set;
mod store;
#[cfg(test)]
mod tests;
pub mod wrapping;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use domain::decider::Timestamp;
use ed25519_dalek::VerifyingKey;
use proof::dsse::Envelope;

pub use self::{
    rotate::rotate,
    set::{FormerKey, KeySet, PublicKey},
};

/// Keys of this server, in their directory and in memory.
pub struct Keys {
    directory: PathBuf,
    set: RwLock<Arc<KeySet>>,
}

/// Reasons to reject a key file.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot access {path}: {reason}")]
    Io { path: String, reason: io::Error },
    #[error(
        "cannot use the key file {path}: it is not a key; restore it from a backup, because runners reject a new key"
    )]
    Malformed { path: String },
    #[error(
        "cannot use the key file {path}: other users can read it; run chmod 600 {path}, and replace the key if it was exposed"
    )]
    Exposed { path: String },
}

impl Keys {
    /// Reads the keys of a directory. Creates missing keys with mode 0600.
    ///
    /// # Errors
    /// [`KeyError`]. An invalid key is not replaced.
    pub fn open(directory: &Path, now: Timestamp) -> Result<Keys, KeyError> {
        store::make_missing(directory, now)?;
        let set = RwLock::new(Arc::new(store::read(directory)?));
        Ok(Keys { directory: directory.into(), set })
    }

    /// Current keys. Do not store them: an operator may replace a key at any time.
    pub fn current(&self) -> Arc<KeySet> {
        Arc::clone(&self.set.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reloads the keys. Returns the new set if an operator replaced a key.
    ///
    /// # Errors
    /// [`KeyError`]. The current keys then stay in use.
    pub fn reload_if_changed(&self) -> Result<Option<Arc<KeySet>>, KeyError> {
        let reloaded = Arc::new(store::read(&self.directory)?);
        if reloaded.public() == self.current().public() {
            return Ok(None);
        }
        *self.set.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&reloaded);
        Ok(Some(reloaded))
    }

    /// Records the size of the log at the last checkpoint that a former key signed. The key then
    /// validates no larger checkpoint.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn keep_last_size(&self, key: &VerifyingKey, size: u64) -> Result<(), KeyError> {
        rotate::keep_last_size(&self.directory, key, size)?;
        self.reload_if_changed().map(drop)
    }

    /// Records the log that these keys belong to, for commands that list keys without a database.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn record_log(&self, log_id: &str) -> Result<(), KeyError> {
        store::write_log(&self.directory, log_id)
    }

    /// Fingerprint of the current manifest key as `sha256:<hex>`.
    pub fn fingerprint(&self) -> String {
        self.current().fingerprint()
    }

    /// List of keys that both listeners serve at `/.well-known/stead-keys`.
    pub fn list(&self, log_id: &str, now: Timestamp) -> Result<Envelope, serde_json::Error> {
        self.current().list(log_id, now)
    }
}

/// Reads the public keys of a directory.
///
/// # Errors
/// [`KeyError`].
pub fn read(directory: &Path) -> Result<Vec<PublicKey>, KeyError> {
    Ok(store::read(directory)?.public_of(store::log(directory)?.as_deref()))
}

/// Reads the keys of a directory for signing and verification. Creates none.
///
/// # Errors
/// [`KeyError`].
pub fn load(directory: &Path) -> Result<KeySet, KeyError> {
    store::read(directory)
}
