//! How a key that signs checkpoints is written down: a C2SP verifier key, `<name>+<hash>+<base64>`.
//!
//! The name is the log's origin, so that whoever has the text knows whose key it is, and the hash finds a character
//! that was copied wrongly.
use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::VerifyingKey;

use crate::{Hash, checkpoint, sha256};

/// A public key with the name of the log that it speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    /// The origin of the log: `stead/<log id>`.
    pub name: String,
    /// The key.
    pub key: VerifyingKey,
}

/// A key that somebody believes, in any of the shapes in which it was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Believed {
    /// The whole verifier key: this log's, and no other's.
    Verifier(VerifierKey),
    /// 64 hexadecimal digits: the key alone.
    Bare(VerifyingKey),
    /// `sha256:` and 64 digits: enough to recognise a key that is there, not to verify by itself.
    Fingerprint(Hash),
}

/// A text that is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no key of checkpoints: {why}")]
pub struct KeyError {
    /// What was read.
    pub text: String,
    /// Why it is none.
    pub why: &'static str,
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = hex::encode(checkpoint::key_id(&self.name, &self.key));
        let key = [&[checkpoint::ED25519], &self.key.as_bytes()[..]].concat();
        write!(f, "{}+{hash}+{}", self.name, BASE64.encode(key))
    }
}

impl FromStr for VerifierKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<VerifierKey, KeyError> {
        let no = |why| KeyError { text: text.into(), why };
        // Base64 has plus signs too: the name and the hash have none.
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(_), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(no("expected <name>+<hash>+<base64>"));
        };
        let key = BASE64.decode(key).map_err(|_| no("its last part is not base64"))?;
        let key = match key.split_first() {
            Some((&checkpoint::ED25519, key)) => public(key),
            Some(_) | None => return Err(no("it is not of Ed25519")),
        };
        let key = key.ok_or_else(|| no("it is not 32 bytes of a point"))?;
        let read = VerifierKey { name: name.into(), key };
        let named = !name.is_empty() && !name.chars().any(|c| c.is_whitespace() || c.is_control());
        if !named {
            return Err(no("its name has spaces or is empty"));
        }
        // One key, one text. The hash is in it.
        if read.to_string() != text {
            return Err(no("its hash does not fit: a character is wrong"));
        }
        Ok(read)
    }
}

impl Believed {
    /// Whether this is the key that is meant.
    pub fn is(&self, key: &VerifierKey) -> bool {
        match self {
            Believed::Verifier(believed) => believed == key,
            Believed::Bare(believed) => *believed == key.key,
            Believed::Fingerprint(believed) => *believed == sha256(key.key.as_bytes()),
        }
    }

    /// The key itself, if a checkpoint of this log can be verified with it. A fingerprint is none.
    pub fn key_for(&self, name: &str) -> Option<VerifyingKey> {
        match self {
            Believed::Verifier(believed) => (believed.name == name).then_some(believed.key),
            Believed::Bare(believed) => Some(*believed),
            Believed::Fingerprint(_) => None,
        }
    }
}

impl FromStr for Believed {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Believed, KeyError> {
        let bytes = |digits: &str| -> Option<Hash> { hex::decode(digits).ok()?.try_into().ok() };
        if text.contains('+') {
            return text.parse().map(Believed::Verifier);
        }
        let no = |why| KeyError { text: text.into(), why };
        if let Some(digits) = text.strip_prefix("sha256:") {
            let hash =
                bytes(digits).ok_or_else(|| no("a fingerprint has 64 hexadecimal digits"))?;
            return Ok(Believed::Fingerprint(hash));
        }
        let key = bytes(text).and_then(|bytes| public(&bytes));
        let why = "expected a verifier key (<name>+<hash>+<base64>), 64 hexadecimal digits, or sha256:<fingerprint>";
        key.map(Believed::Bare).ok_or_else(|| no(why))
    }
}

fn public(bytes: &[u8]) -> Option<VerifyingKey> {
    VerifyingKey::from_bytes(bytes.try_into().ok()?).ok()
}
