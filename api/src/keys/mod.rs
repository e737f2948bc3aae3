//! The server's three Ed25519 keys, kept outside the database: who reads the database cannot sign.
//!
//! | key | signs |
//! |---|---|
//! | tokens | access tokens of runners, job tokens |
//! | manifests | manifests, grants, and the list of all three |
//! | checkpoints | tree heads of the log |
//!
//! A runner is told the fingerprint of the manifest key by the command that enrols it, and learns the
//! others from the list that this key signs. A key that was replaced stays in the list until its time is over, and
//! a former manifest key goes on signing the list: a runner that knows no other comes to the new one by it.
mod rotate;
mod set;
mod store;
#[cfg(test)]
mod tests;
/// The key that wraps the keys of subjects.
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
    set::{Former, KeySet, PublicKey},
};

/// The keys of this server, as they are now. They never leave this process and are never printed.
pub struct Keys {
    directory: PathBuf,
    set: RwLock<Arc<KeySet>>,
}

/// A key file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The directory or a file in it cannot be read or written.
    #[error("{path}: {reason}")]
    Io { path: String, reason: io::Error },
    /// The file is not what this server writes.
    #[error(
        "{path} is not a key: restore it from a backup; a new key would be refused by every runner"
    )]
    Malformed { path: String },
    /// Others can read the file.
    #[error(
        "{path} can be read by others: chmod 600 {path}, and replace the key if they may have read it"
    )]
    Exposed { path: String },
}

impl Keys {
    /// Read the keys of a directory; those that are not there yet are made, mode 0600.
    ///
    /// # Errors
    /// [`KeyError`]: a key is never replaced silently.
    pub fn open(directory: &Path, now: Timestamp) -> Result<Keys, KeyError> {
        store::make_missing(directory, now)?;
        let set = RwLock::new(Arc::new(store::read(directory)?));
        Ok(Keys { directory: directory.into(), set })
    }

    /// The keys as they are now. Not to be kept: an operator may replace one at any time.
    pub fn current(&self) -> Arc<KeySet> {
        Arc::clone(&self.set.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Look whether an operator has replaced a key. `Some`: the keys from now on.
    ///
    /// # Errors
    /// [`KeyError`]: then the keys stay what they were.
    pub fn look(&self) -> Result<Option<Arc<KeySet>>, KeyError> {
        let found = Arc::new(store::read(&self.directory)?);
        if found.public() == self.current().public() {
            return Ok(None);
        }
        *self.set.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&found);
        Ok(Some(found))
    }

    /// Keep the size of the log at the last checkpoint that a former key signed: from then on it validates none of a larger
    /// log.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn keep_last_size(&self, key: &VerifyingKey, size: u64) -> Result<(), KeyError> {
        rotate::keep_last_size(&self.directory, key, size)?;
        self.look().map(drop)
    }

    /// Keep which log these keys speak for: whoever lists them has no database to ask.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn speak_for(&self, log_id: &str) -> Result<(), KeyError> {
        store::keep_log(&self.directory, log_id)
    }

    /// What the enrol command prints so that a runner knows whom it talks to: `sha256:<hex>`.
    pub fn fingerprint(&self) -> String {
        self.current().fingerprint()
    }

    /// The list that both listeners serve at `/.well-known/stead-keys`.
    ///
    /// # Errors
    /// None in practice: the list is plain data.
    pub fn list(&self, log_id: &str, now: Timestamp) -> Result<Envelope, serde_json::Error> {
        self.current().list(log_id, now)
    }
}

/// The keys of a directory that has them, for showing.
///
/// # Errors
/// [`KeyError`].
pub fn read(directory: &Path) -> Result<Vec<PublicKey>, KeyError> {
    Ok(store::read(directory)?.public_of(store::log(directory)?.as_deref()))
}

/// The keys of a directory that has them, for signing or for knowing a signature; none is made.
///
/// # Errors
/// [`KeyError`].
pub fn kept(directory: &Path) -> Result<KeySet, KeyError> {
    store::read(directory)
}
