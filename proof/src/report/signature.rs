//! One signature of a runner, to be checked whenever there is time.
use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signature as Ed25519, VerifyingKey};

/// A report that was not made by its runner, or not like this.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("position {position}: {what}")]
pub struct Wrong {
    /// Of the event.
    pub position: u64,
    /// What it means, in words.
    pub what: String,
}

impl Wrong {
    pub(super) fn of(position: u64, runner: &str, why: &str) -> Wrong {
        let what = format!("this report was not made by the runner {runner}: {why}");
        Wrong { position, what }
    }
}

/// What a runner is said to have signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub(super) position: u64,
    pub(super) runner: String,
    /// The key that the runner had there, hexadecimal.
    pub(super) key: String,
    /// The bytes under the signature.
    pub(super) said: Vec<u8>,
    /// Base64.
    pub(super) signature: String,
}

impl Signature {
    /// Whether it holds.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn check(&self) -> Result<(), Wrong> {
        self.check_by(key(&self.key).as_ref())
    }

    /// Those that do not hold. A key is taken apart once: that is a sixth of checking a signature.
    pub fn check_all(all: &[Signature]) -> impl Iterator<Item = Wrong> {
        let mut keys = HashMap::new();
        all.iter().filter_map(move |one| {
            let key = keys.entry(&*one.key).or_insert_with(|| key(&one.key));
            one.check_by(key.as_ref()).err()
        })
    }

    fn check_by(&self, key: Option<&VerifyingKey>) -> Result<(), Wrong> {
        if key.and_then(|key| self.holds(key)) == Some(true) {
            return Ok(());
        }
        let why = "the signature is not that of the runner's key under what the event says";
        Err(Wrong::of(self.position, &self.runner, why))
    }

    fn holds(&self, key: &VerifyingKey) -> Option<bool> {
        let signature = Ed25519::from_slice(&BASE64.decode(&self.signature).ok()?).ok()?;
        Some(key.verify_strict(&self.said, &signature).is_ok())
    }
}

fn key(hexadecimal: &str) -> Option<VerifyingKey> {
    let key = <[u8; 32]>::try_from(hex::decode(hexadecimal).ok()?).ok()?;
    VerifyingKey::from_bytes(&key).ok()
}
