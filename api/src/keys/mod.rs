//! The server's three Ed25519 keys, kept outside the database: who reads the database cannot sign.
//!
//! | key | signs |
//! |---|---|
//! | tokens | access tokens of runners, job tokens |
//! | manifests | manifests, grants, and the list of all three |
//! | checkpoints | tree heads of the log |
//!
//! A runner is told the fingerprint of the manifest key by the command that enrols it, and learns the
//! others from the list that this key signs.
mod store;

use std::{io, path::Path};

use domain::decider::Timestamp;
use ed25519_dalek::{SigningKey, VerifyingKey};
use proof::dsse::{self, Envelope};
use schemas::keys::{KEYS_TYPE, KeyList, KeyUse, ServerKey, fingerprint};

/// The keys of this server. They never leave this process and are never printed.
pub struct Keys {
    tokens: Stored,
    manifests: Stored,
    checkpoints: Stored,
}

/// One key and when it was made.
struct Stored {
    key: SigningKey,
    made_at: Timestamp,
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
        store::directory(directory)?;
        let key = |name: &str| store::read_or_make(&directory.join(name), now);
        Ok(Keys {
            tokens: key("tokens.key")?,
            manifests: key("manifests.key")?,
            checkpoints: key("checkpoints.key")?,
        })
    }

    /// Signs tokens.
    pub fn tokens(&self) -> &SigningKey {
        &self.tokens.key
    }

    /// Signs manifests and grants.
    pub fn manifests(&self) -> &SigningKey {
        &self.manifests.key
    }

    /// Signs checkpoints.
    pub fn checkpoints(&self) -> &SigningKey {
        &self.checkpoints.key
    }

    /// The public halves that verify our own tokens.
    pub fn token_verifiers(&self) -> [VerifyingKey; 1] {
        [self.tokens.key.verifying_key()]
    }

    /// What the enrol command prints so that a runner knows whom it talks to: `sha256:<hex>`.
    pub fn fingerprint(&self) -> String {
        fingerprint(self.manifests.key.verifying_key().as_bytes())
    }

    /// The list that both listeners serve at `/.well-known/stead-keys`.
    ///
    /// # Errors
    /// None in practice: the list is plain data.
    pub fn list(&self, log_id: &str, now: Timestamp) -> Result<Envelope, serde_json::Error> {
        let public = |usage, stored: &Stored| ServerKey {
            usage,
            key: hex::encode(stored.key.verifying_key().as_bytes()),
            // A clock that was set back since must not make them keys of the future.
            not_before: stored.made_at.min(now),
            not_after: None,
        };
        let list = KeyList {
            version: 1,
            log_id: log_id.into(),
            issued_at: now,
            keys: vec![
                public(KeyUse::Tokens, &self.tokens),
                public(KeyUse::Manifests, &self.manifests),
                public(KeyUse::Checkpoints, &self.checkpoints),
            ],
        };
        Ok(dsse::sign(KEYS_TYPE, &serde_json::to_vec(&list)?, &self.manifests.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_timestamp_micros(1_700_000_000_000_000).unwrap()
    }

    #[test]
    fn keys_are_made_once_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = Keys::open(dir.path(), now()).unwrap();
        let again = Keys::open(dir.path(), now() + chrono::TimeDelta::days(1)).unwrap();
        assert_eq!(first.fingerprint(), again.fingerprint());
        assert_eq!(first.tokens().to_bytes(), again.tokens().to_bytes());
        assert_ne!(first.tokens().to_bytes(), first.checkpoints().to_bytes());
        assert_eq!(again.tokens.made_at, now());
    }

    #[test]
    fn a_damaged_or_exposed_key_is_named_and_never_replaced() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        Keys::open(dir.path(), now()).unwrap();
        let path = dir.path().join("manifests.key");
        let kept = std::fs::read(&path).unwrap();
        std::fs::write(&path, "not a key").unwrap();
        let refusal = Keys::open(dir.path(), now()).err().unwrap().to_string();
        assert!(refusal.contains("manifests.key is not a key"), "{refusal}");
        assert_eq!(std::fs::read(&path).unwrap(), b"not a key");
        std::fs::write(&path, kept).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(matches!(Keys::open(dir.path(), now()), Err(KeyError::Exposed { .. })));
    }

    #[test]
    fn the_list_is_signed_by_the_key_that_the_fingerprint_names() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path(), now()).unwrap();
        let envelope = keys.list("01ARZ3NDEKTSV4RRFFQ69G5FAV", now()).unwrap();
        let signer = keys.manifests().verifying_key();
        let payload = dsse::verify_as(KEYS_TYPE, &envelope, &[signer]).unwrap();
        let list: KeyList = serde_json::from_slice(&payload).unwrap();
        assert_eq!(list.of(KeyUse::Manifests, now()), [*signer.as_bytes()]);
        assert_eq!(list.of(KeyUse::Tokens, now()).len(), 1);
        assert_eq!(fingerprint(&list.of(KeyUse::Manifests, now())[0]), keys.fingerprint());
    }

    #[test]
    fn keys_hold_although_the_clock_was_set_back_since_they_were_made() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path(), now() + chrono::TimeDelta::hours(2)).unwrap();
        let envelope = keys.list("01ARZ3NDEKTSV4RRFFQ69G5FAV", now()).unwrap();
        let signer = keys.manifests().verifying_key();
        let payload = dsse::verify_as(KEYS_TYPE, &envelope, &[signer]).unwrap();
        let list: KeyList = serde_json::from_slice(&payload).unwrap();
        assert_eq!(list.of(KeyUse::Manifests, now()), [*signer.as_bytes()]);
    }
}
