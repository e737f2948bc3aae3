//! Keys of the runner: its identity key, and the keys of its install.
//!
//! The identity key belongs to the agent, which replaces it from time to time. The former and the
//! new identity key are stored until the server has confirmed the new one. The keys of the install
//! are in [`crate::seed`].
use std::{
    fs, io,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use chrono::{DateTime, Utc};
use ed25519_dalek::SigningKey;
use install_keys::InstallKeys;
use rand::rngs::OsRng;
use schemas::{
    runner::InstallPublicKeys,
    token::{self, TokenError},
};
use serde::Serialize;
use zeroize::{Zeroize as _, Zeroizing};

use crate::{
    data::{self, Data},
    host, seed,
};

const IDENTITY: &str = "keys/identity";
const NEXT: &str = "keys/identity.next";

/// Keys of one runner.
pub struct Keys {
    /// Ed25519 key that signs statements, journal heads and requests for tokens.
    pub identity: IdentityKey,
    /// Keys of the install. `None` for a build runner, and before the first start.
    pub install: Option<InstallKeys>,
}

/// Current identity key. It may be replaced while other tasks sign with it.
#[derive(Clone)]
pub struct IdentityKey(Arc<RwLock<Dated>>);

/// Key with the time of its creation.
#[derive(Clone)]
pub struct Dated {
    pub key: SigningKey,
    pub made_at: DateTime<Utc>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("identity", &self.identity_hex()).finish_non_exhaustive()
    }
}

impl Keys {
    /// Opens the keys of this directory, and creates the identity key at the first start.
    pub fn open(data: &Data) -> io::Result<Self> {
        let identity = match read(&data.path(IDENTITY))? {
            Some(identity) => identity,
            None => create(&data.path(IDENTITY))?,
        };
        Ok(Keys { identity: IdentityKey::of(identity), install: seed::open(data)? })
    }

    /// Returns the public identity key in hexadecimal.
    pub fn identity_hex(&self) -> String {
        self.identity.now().public_hex()
    }

    /// Returns the public keys of the install, signed by the current identity key.
    pub fn signed_install_keys(&self) -> Option<InstallPublicKeys> {
        self.install.as_ref().map(|keys| seed::signed(keys, &self.identity.now().key))
    }

    /// Returns the next identity key, if a replacement began. The server may know it already.
    pub fn next(data: &Data) -> io::Result<Option<Dated>> {
        read(&data.path(NEXT))
    }

    /// Returns the next identity key, and creates it if none exists. The key is on disk before the
    /// runner sends it.
    pub fn begin_next(data: &Data) -> io::Result<Dated> {
        match Keys::next(data)? {
            Some(next) => Ok(next),
            None => create(&data.path(NEXT)),
        }
    }

    /// Replaces the identity key with `next`, which the server has confirmed.
    pub fn activate_next(&self, data: &Data, next: Dated) -> io::Result<()> {
        fs::rename(data.path(NEXT), data.path(IDENTITY))?;
        // After the rename the new key is the only one, even if the rename is not durable yet.
        *self.identity.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        data::sync_parent(&data.path(IDENTITY))
    }
}

impl IdentityKey {
    pub(crate) fn of(key: Dated) -> Self {
        IdentityKey(Arc::new(RwLock::new(key)))
    }

    pub fn now(&self) -> Dated {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Signs the claims of a token.
    pub fn assert<C: Serialize>(&self, claims: &C) -> Result<String, TokenError> {
        token::sign(claims, &self.now().key)
    }
}

impl Dated {
    /// Returns the public key in hexadecimal.
    pub fn public_hex(&self) -> String {
        hex::encode(self.key.verifying_key().as_bytes())
    }
}

/// Reads a line with a key and its creation time in Unix seconds. A key without a creation time
/// counts as the oldest.
fn read(path: &Path) -> io::Result<Option<Dated>> {
    let mut text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (key, second) = text.trim().split_once(' ').unwrap_or((text.trim(), "0"));
    let mut seed = Zeroizing::new([0; 32]);
    let read = hex::decode_to_slice(key, seed.as_mut());
    let made_at = second.parse().ok().and_then(|second| DateTime::from_timestamp(second, 0));
    text.zeroize();
    match (read, made_at) {
        (Ok(()), Some(made_at)) => Ok(Some(Dated { key: SigningKey::from_bytes(&seed), made_at })),
        (_, _) => Err(io::Error::other(format!(
            "cannot read {}: the file is not a key; restore it from a backup",
            path.display()
        ))),
    }
}

fn create(path: &Path) -> io::Result<Dated> {
    let (key, made_at) = (SigningKey::generate(&mut OsRng), host::server_now());
    let hex = Zeroizing::new(hex::encode(key.to_bytes()));
    let line = Zeroizing::new(format!("{} {}", *hex, made_at.timestamp()));
    data::replace(path, line.as_bytes())?;
    Ok(Dated { key, made_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_created_once() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let (first, again) = (Keys::open(&data).unwrap(), Keys::open(&data).unwrap());
        assert_eq!(first.identity_hex(), again.identity_hex());
        assert!(again.install.is_none());
        let secret = hex::encode(first.identity.now().key.to_bytes());
        assert!(!format!("{first:?}").contains(&secret));
        let age = host::server_now() - again.identity.now().made_at;
        assert!(age < chrono::TimeDelta::minutes(1), "{age}");
    }

    #[test]
    fn a_broken_key_is_not_replaced_silently() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        for broken in ["short", "short 1", &format!("{} soon", "11".repeat(32))] {
            fs::write(data.path("keys/identity"), broken).unwrap();
            assert!(Keys::open(&data).unwrap_err().to_string().contains("the file is not a key"));
        }
    }

    #[test]
    fn the_next_key_is_stored_until_it_is_activated() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let keys = Keys::open(&data).unwrap();
        let shared = keys.identity.clone();
        let next = Keys::begin_next(&data).unwrap();
        assert_eq!(Keys::begin_next(&data).unwrap().public_hex(), next.public_hex());
        let again = Keys::open(&data).unwrap();
        assert_eq!(again.identity_hex(), keys.identity_hex());
        let public = next.public_hex();
        keys.activate_next(&data, next).unwrap();
        assert_eq!(shared.now().public_hex(), public);
        assert_eq!(Keys::open(&data).unwrap().identity_hex(), public);
        assert!(Keys::next(&data).unwrap().is_none());
    }
}
