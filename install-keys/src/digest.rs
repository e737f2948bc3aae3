//! Keyed digests: a party without the key can neither compute nor test them.
use std::{fmt, str::FromStr};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::derive::{Secret, expand};

/// Purpose of a digest. Digests of different purposes have different keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestUse {
    /// Complete plaintext, to recognize a repeated one.
    Plaintext,
    /// Name that the server must not learn.
    Name,
    /// Complete log of a job.
    Log,
}

/// HMAC-SHA256 with the generation of its key: `hmac-sha256:1:` and 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyedDigest {
    pub(crate) generation: u32,
    mac: [u8; 32],
}

/// Text that is not a keyed digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid keyed digest {0:?}: expected `hmac-sha256:`, a generation, `:` and 64 hexadecimal digits"
)]
pub struct KeyedDigestError(String);

impl KeyedDigest {
    pub(crate) fn compute(
        secret: &Secret,
        generation: u32,
        usage: DigestUse,
        bytes: &[u8],
    ) -> Self {
        let usage: &[u8] = match usage {
            DigestUse::Plaintext => b"plaintext",
            DigestUse::Name => b"name",
            DigestUse::Log => b"log",
        };
        let key = expand(secret, "digest", &[&generation.to_be_bytes(), usage]);
        // HMAC pads a key with zeros to a block of SHA-256.
        let mut block = Zeroizing::new([0; 64]);
        block[..32].copy_from_slice(key.as_ref());
        let mut mac = Hmac::<Sha256>::new((&*block).into());
        mac.update(bytes);
        KeyedDigest { generation, mac: mac.finalize().into_bytes().into() }
    }

    /// Returns the bytes of the MAC.
    pub fn bytes(&self) -> [u8; 32] {
        self.mac
    }

    /// Compares in constant time.
    pub(crate) fn matches(&self, other: &KeyedDigest) -> bool {
        self.generation == other.generation && self.mac.ct_eq(&other.mac).into()
    }
}

impl fmt::Display for KeyedDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hmac-sha256:{}:{}", self.generation, hex::encode(self.mac))
    }
}

impl FromStr for KeyedDigest {
    type Err = KeyedDigestError;
    fn from_str(text: &str) -> Result<Self, KeyedDigestError> {
        let read = || {
            let (generation, digits) = text.strip_prefix("hmac-sha256:")?.split_once(':')?;
            let mac = hex::decode(digits).ok()?.try_into().ok()?;
            Some(KeyedDigest { generation: generation.parse().ok()?, mac })
        };
        read()
            .filter(|digest| digest.to_string() == text)
            .ok_or_else(|| KeyedDigestError(text.into()))
    }
}

impl TryFrom<String> for KeyedDigest {
    type Error = KeyedDigestError;
    fn try_from(text: String) -> Result<Self, KeyedDigestError> {
        text.parse()
    }
}

impl From<KeyedDigest> for String {
    fn from(digest: KeyedDigest) -> String {
        digest.to_string()
    }
}
