//! The runner's own keys: who it is, and what its install's secrets are sealed to.
//!
//! The identity key belongs to the agent. The sealing key belongs to the install and outlives agents: it may
//! be brought along from a backup before the first start.
use std::{fs, io, path::Path};

use ed25519_dalek::SigningKey;
use rand::{RngCore as _, rngs::OsRng};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::{Zeroize as _, Zeroizing};

use crate::data::{self, Data};

/// The keys of one runner.
pub struct Keys {
    /// Ed25519: signs what this runner says.
    pub identity: SigningKey,
    /// X25519: opens what was sealed to the install.
    pub sealing: StaticSecret,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("identity", &self.identity_hex()).finish_non_exhaustive()
    }
}

impl Keys {
    /// The keys of this directory, made at the first start.
    pub fn open(data: &Data) -> io::Result<Self> {
        let identity = seed(&data.path("keys/identity"))?;
        let sealing = seed(&data.path("keys/sealing"))?;
        Ok(Keys {
            identity: SigningKey::from_bytes(&identity),
            sealing: StaticSecret::from(*sealing),
        })
    }

    /// The public half of the identity key.
    pub fn identity_hex(&self) -> String {
        hex::encode(self.identity.verifying_key().as_bytes())
    }

    /// The public half of the sealing key.
    pub fn sealing_hex(&self) -> String {
        hex::encode(PublicKey::from(&self.sealing).as_bytes())
    }
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
        assert!(!format!("{first:?}").contains(&hex::encode(first.identity.to_bytes())));
    }

    #[test]
    fn a_broken_key_is_not_replaced_silently() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        fs::write(data.path("keys/identity"), "short").unwrap();
        assert!(Keys::open(&data).unwrap_err().to_string().contains("is not a key"));
    }
}
