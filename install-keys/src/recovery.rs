//! Seed of an install, wrapped for a recovery recipient of the customer.
//!
//! The encrypted part is a file of age, which the standard tool decrypts. age has no associated
//! data, so the install signs the whole with its own key. A signature proves only that its author
//! had the seed in the file: the fingerprint that the customer kept proves that it is the seed of
//! the install.
mod age;
mod bech32;

use std::{fmt, str::FromStr};

use domain::ids::InstallId;
use ed25519_dalek::{Signature, Signer as _};
use rand_core::CryptoRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::{
    context::{Encoder, Of},
    derive::{KeySet, Secret},
    keys::InstallKeys,
    public::Fingerprint,
    seed::Seed,
};

const FORMAT: u32 = 1;
/// Number of earlier generations to compare with the expected fingerprint. The author of a wrapped
/// seed can choose any generation.
const EARLIER_GENERATIONS: usize = 100;

/// Reason why a seed cannot be wrapped or recovered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// The text is not the public key of an age identity.
    #[error(
        "not a recovery recipient: expected the public key of an age identity, `age1…`; create one with age-keygen"
    )]
    InvalidRecipient,
    /// The text contains no private key of age.
    #[error(
        "not an age identity: expected exactly one line `AGE-SECRET-KEY-1…`, as age-keygen writes it"
    )]
    InvalidIdentity,
    /// A later version wrapped the seed.
    #[error("the wrapped seed has format {0}, but this version reads format 1; update the runner")]
    UnsupportedFormat(u32),
    /// The seed belongs to another install.
    #[error("the wrapped seed belongs to another install: {0}")]
    OtherInstall(InstallId),
    /// The seed belongs to an install of another log.
    #[error("the wrapped seed belongs to the log of another server")]
    OtherLog,
    /// The seed is wrapped for another recipient.
    #[error(
        "wrong recovery key: the seed is wrapped for {0}, which is not the recipient of this identity"
    )]
    WrongIdentity(String),
    /// The encrypted part is incomplete.
    #[error("the wrapped seed is truncated or not an age file")]
    Truncated,
    /// The encrypted part does not decrypt.
    #[error("the wrapped seed was changed, or was encrypted to another key")]
    Changed,
    /// The signature does not cover this log, install, generation and recipient.
    #[error("the wrapped seed is not the one that the install signed: it was moved or changed")]
    BadSignature,
    /// The keys differ from those that the customer expects.
    #[error(
        "the wrapped seed has other keys than the expected fingerprint: it has the fingerprint {0}; it is of an older \
         generation, of a runner that enrolled with new keys, or another party wrapped a seed of its own; do not pass this \
         fingerprint unless your own records contain it"
    )]
    OtherFingerprint(Fingerprint),
    /// The seed is the expected one, which proves its origin. Another host has recovered it.
    #[error(
        "the wrapped seed is the expected one, but of the later generation {generation}: a host recovered it after \
         generation {expected}, which has your fingerprint; if that host is lost as well, repeat the call with \
         --fingerprint {fingerprint}"
    )]
    LaterGeneration {
        /// Generation of the wrapped seed.
        generation: u32,
        /// Earlier generation that has the expected fingerprint.
        expected: u32,
        /// Fingerprint of the later generation.
        fingerprint: Fingerprint,
    },
}

/// Public key of an age identity that can recover an install.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    text: String,
    key: [u8; 32],
}

impl FromStr for Recipient {
    type Err = RecoveryError;
    fn from_str(text: &str) -> Result<Self, RecoveryError> {
        let key = *bech32::decode("age", text).ok_or(RecoveryError::InvalidRecipient)?;
        Ok(Recipient { text: text.into(), key })
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Private key of age. It is overwritten when it is dropped and never printed.
pub struct RecoveryIdentity(Secret);

impl RecoveryIdentity {
    /// Reads a file of age-keygen: comments, and one private key.
    pub fn parse(text: &str) -> Result<Self, RecoveryError> {
        let lines = text.lines().map(str::trim);
        let mut keys = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (Some(key), None) = (keys.next(), keys.next()) else {
            return Err(RecoveryError::InvalidIdentity);
        };
        if key.bytes().any(|byte| byte.is_ascii_lowercase()) {
            return Err(RecoveryError::InvalidIdentity);
        }
        let key = Zeroizing::new(key.to_ascii_lowercase());
        let secret = bech32::decode("age-secret-key-", &key);
        secret.map(RecoveryIdentity).ok_or(RecoveryError::InvalidIdentity)
    }
}

impl fmt::Debug for RecoveryIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoveryIdentity(…)")
    }
}

/// Seed for one recipient, with the install that it belongs to. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrappedSeed {
    format: u32,
    log_id: String,
    install: InstallId,
    generation: u32,
    recipient: String,
    /// File of age. Its plaintext is a line: the seed in hexadecimal, and the generation.
    seed: String,
    /// Signature of the install's key, in hexadecimal.
    signature: String,
}

/// Seed that was recovered, and the generation of its keys.
#[derive(Debug)]
pub struct Recovered {
    /// Seed of the install.
    pub seed: Seed,
    /// Generation of the keys.
    pub generation: u32,
    /// Id of the log that the install belongs to.
    pub log_id: String,
}

impl InstallKeys {
    /// Wraps the seed for a recipient and signs it.
    pub fn wrap_seed(
        &self,
        of: &Of<'_>,
        recipient: &Recipient,
        rng: &mut impl CryptoRng,
    ) -> Result<WrappedSeed, RecoveryError> {
        let digits = Zeroizing::new(hex::encode(self.seed().expose()));
        let line = Zeroizing::new(format!("{} {}\n", *digits, self.generation()));
        let mut wrapped = WrappedSeed {
            format: FORMAT,
            log_id: of.log_id.into(),
            install: of.install,
            generation: self.generation(),
            recipient: recipient.to_string(),
            seed: age::encrypt(&recipient.key, line.as_bytes(), rng)?,
            signature: String::new(),
        };
        let signature = self.key_set().signing.sign(&wrapped.signed());
        wrapped.signature = hex::encode(signature.to_bytes());
        Ok(wrapped)
    }
}

impl WrappedSeed {
    /// Returns the recipient.
    pub fn recipient(&self) -> &str {
        &self.recipient
    }

    /// Returns true if these keys wrapped and signed their own current seed for this install.
    pub fn is_current(&self, of: &Of<'_>, keys: &InstallKeys) -> bool {
        let is_of = (self.log_id.as_str(), self.install) == (of.log_id, of.install);
        is_of && self.generation == keys.generation() && self.is_signed(&keys.key_set())
    }

    /// Recovers the seed of the install with the expected fingerprint.
    ///
    /// # Errors
    /// Names the first check that fails. No secret is returned then.
    pub fn recover(
        &self,
        install: InstallId,
        expected: &Fingerprint,
        identity: &RecoveryIdentity,
    ) -> Result<Recovered, RecoveryError> {
        if self.format != FORMAT {
            return Err(RecoveryError::UnsupportedFormat(self.format));
        }
        if self.install != install {
            return Err(RecoveryError::OtherInstall(self.install));
        }
        let recipient: Recipient = self.recipient.parse()?;
        if recipient.key != age::public(&identity.0) {
            return Err(RecoveryError::WrongIdentity(self.recipient.clone()));
        }
        let line = age::decrypt(&identity.0, &self.seed)?;
        let (seed, generation) = parse(&line).ok_or(RecoveryError::Changed)?;
        let keys = InstallKeys::new(&seed, generation);
        if generation != self.generation || !self.is_signed(&keys.key_set()) {
            return Err(RecoveryError::BadSignature);
        }
        let fingerprint_of = |generation| {
            let keys = InstallKeys::new(&seed, generation).public();
            keys.fingerprint(&Of { log_id: &self.log_id, install })
        };
        let fingerprint = fingerprint_of(generation);
        if fingerprint != *expected {
            let mut earlier = (1..generation).rev().take(EARLIER_GENERATIONS);
            return Err(match earlier.find(|earlier| fingerprint_of(*earlier) == *expected) {
                Some(expected) => {
                    RecoveryError::LaterGeneration { generation, expected, fingerprint }
                }
                None => RecoveryError::OtherFingerprint(fingerprint),
            });
        }
        Ok(Recovered { seed, generation, log_id: self.log_id.clone() })
    }

    fn is_signed(&self, keys: &KeySet) -> bool {
        let signature = hex::decode(&self.signature).ok();
        let signature = signature.and_then(|bytes| Signature::from_slice(&bytes).ok());
        let key = keys.signing.verifying_key();
        signature.is_some_and(|it| key.verify_strict(&self.signed(), &it).is_ok())
    }

    /// Returns the bytes that the install signs.
    fn signed(&self) -> Vec<u8> {
        let mut encoder = Encoder::new("wrapped_seed");
        encoder.of(&Of { log_id: &self.log_id, install: self.install });
        encoder.number(self.format.into()).number(self.generation.into());
        let seed: [u8; 32] = Sha256::digest(self.seed.as_bytes()).into();
        encoder.bytes(self.recipient.as_bytes()).bytes(&seed);
        encoder.finish()
    }
}

fn parse(line: &[u8]) -> Option<(Seed, u32)> {
    let (digits, generation) = std::str::from_utf8(line).ok()?.trim_end().split_once(' ')?;
    let generation = generation.parse().ok().filter(|generation| *generation > 0)?;
    let mut seed = Zeroizing::new([0; 32]);
    hex::decode_to_slice(digits, seed.as_mut()).ok()?;
    Some((Seed::from_bytes(&seed), generation))
}

#[cfg(test)]
mod tests;
