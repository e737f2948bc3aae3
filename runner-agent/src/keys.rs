//! The runner's own keys: who it is, and what its install's secrets are sealed to.
//!
//! The identity key belongs to the agent, which replaces it from time to time: until the server has said that it
//! knows the new one, both are kept. The sealing key belongs to the install and outlives agents: it may be brought
//! along from a backup before the first start.
use std::{
    fs, io,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use chrono::{DateTime, Utc};
use ed25519_dalek::SigningKey;
use rand::{RngCore as _, rngs::OsRng};
use schemas::token::{self, TokenError};
use serde::Serialize;
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::{Zeroize as _, Zeroizing};

use crate::{
    data::{self, Data},
    host,
};

const IDENTITY: &str = "keys/identity";
const NEXT: &str = "keys/identity.next";

/// The keys of one runner.
pub struct Keys {
    /// Ed25519: signs what this runner says.
    pub identity: IdentityKey,
    /// X25519: opens what was sealed to the install.
    pub sealing: StaticSecret,
}

/// The identity key as it is now: it may be replaced while others sign with it.
#[derive(Clone)]
pub struct IdentityKey(Arc<RwLock<Dated>>);

/// A key and when it was made.
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
    /// The keys of this directory, made at the first start.
    pub fn open(data: &Data) -> io::Result<Self> {
        let identity = match read(&data.path(IDENTITY))? {
            Some(identity) => identity,
            None => make(&data.path(IDENTITY))?,
        };
        let sealing = seed(&data.path("keys/sealing"))?;
        Ok(Keys { identity: IdentityKey::of(identity), sealing: StaticSecret::from(*sealing) })
    }

    /// The public half of the identity key.
    pub fn identity_hex(&self) -> String {
        self.identity.now().public_hex()
    }

    /// The public half of the sealing key.
    pub fn sealing_hex(&self) -> String {
        hex::encode(PublicKey::from(&self.sealing).as_bytes())
    }

    /// The identity key to be, if one was begun: the server may know it already.
    pub fn next(data: &Data) -> io::Result<Option<Dated>> {
        read(&data.path(NEXT))
    }

    /// The identity key to be. It is on disk before anybody hears of it.
    pub fn begin_next(data: &Data) -> io::Result<Dated> {
        match Keys::next(data)? {
            Some(next) => Ok(next),
            None => make(&data.path(NEXT)),
        }
    }

    /// The server knows the new key: the former one is gone.
    pub fn take_next(&self, data: &Data, next: Dated) -> io::Result<()> {
        fs::rename(data.path(NEXT), data.path(IDENTITY))?;
        // In its place it is the only one that there is, whether or not that reaches the disk.
        *self.identity.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        data::sync_parent(&data.path(IDENTITY))
    }
}

impl IdentityKey {
    pub(crate) fn of(key: Dated) -> Self {
        IdentityKey(Arc::new(RwLock::new(key)))
    }

    /// The key as it is now.
    pub fn now(&self) -> Dated {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sign claims.
    pub fn assert<C: Serialize>(&self, claims: &C) -> Result<String, TokenError> {
        token::sign(claims, &self.now().key)
    }
}

impl Dated {
    /// The public half.
    pub fn public_hex(&self) -> String {
        hex::encode(self.key.verifying_key().as_bytes())
    }
}

/// A key and the second it was made, in one line. One without its second is as old as can be.
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
        (_, _) => Err(io::Error::other(format!("{} is not a key", path.display()))),
    }
}

fn make(path: &Path) -> io::Result<Dated> {
    let (key, made_at) = (SigningKey::generate(&mut OsRng), host::server_now());
    let hex = Zeroizing::new(hex::encode(key.to_bytes()));
    let line = Zeroizing::new(format!("{} {}", *hex, made_at.timestamp()));
    data::replace(path, line.as_bytes())?;
    Ok(Dated { key, made_at })
}

/// 32 secret bytes of a file, hexadecimal; made if the file is not there.
fn seed(path: &Path) -> io::Result<Zeroizing<[u8; 32]>> {
    let mut seed = Zeroizing::new([0; 32]);
    match fs::read_to_string(path) {
        Ok(mut text) => {
            let read = hex::decode_to_slice(text.trim(), seed.as_mut());
            text.zeroize();
            read.map_err(|_| io::Error::other(format!("{} is not a key", path.display())))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            OsRng.fill_bytes(seed.as_mut());
            data::replace(path, Zeroizing::new(hex::encode(*seed)).as_bytes())?;
        }
        Err(error) => return Err(error),
    }
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let (first, again) = (Keys::open(&data).unwrap(), Keys::open(&data).unwrap());
        assert_eq!(first.identity_hex(), again.identity_hex());
        assert_eq!(first.sealing_hex(), again.sealing_hex());
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
            assert!(Keys::open(&data).unwrap_err().to_string().contains("is not a key"));
        }
    }

    #[test]
    fn a_key_to_be_is_kept_beside_the_present_one_until_it_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let keys = Keys::open(&data).unwrap();
        let shared = keys.identity.clone();
        let next = Keys::begin_next(&data).unwrap();
        assert_eq!(Keys::begin_next(&data).unwrap().public_hex(), next.public_hex());
        let again = Keys::open(&data).unwrap();
        assert_eq!(again.identity_hex(), keys.identity_hex());
        let public = next.public_hex();
        keys.take_next(&data, next).unwrap();
        assert_eq!(shared.now().public_hex(), public);
        assert_eq!(Keys::open(&data).unwrap().identity_hex(), public);
        assert!(Keys::next(&data).unwrap().is_none());
    }
}
