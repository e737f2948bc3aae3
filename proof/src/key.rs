//! Text form of a key that signs checkpoints: a C2SP verifier key, `<name>+<hash>+<base64>`.
//!
//! The name is the log's origin, so the text identifies the log of the key. The hash detects a
//! mistyped character.
use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::VerifyingKey;

use crate::{Hash, checkpoint, sha256};

/// Public key with the name of its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    /// Origin of the log, `stead/<log id>`.
    pub name: String,
    /// Ed25519 public key, which signs the checkpoints of the log.
    pub key: VerifyingKey,
}

/// Trusted key, in any of its text forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustedKey {
    /// Verifier key. It is valid for one log only.
    Verifier(VerifierKey),
    /// Public key alone, 64 hexadecimal digits.
    Bare(VerifyingKey),
    /// Fingerprint, `sha256:` and 64 digits. It identifies a key but cannot verify a signature.
    Fingerprint(Hash),
}

/// Text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a checkpoint key: {why}")]
pub struct KeyError {
    /// Rejected text.
    pub text: String,
    /// Reason for the rejection.
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
        let error = |why| KeyError { text: text.into(), why };
        // Base64 may contain plus signs; the name and the hash never do.
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(_), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(error("expected <name>+<hash>+<base64>"));
        };
        let key = BASE64.decode(key).map_err(|_| error("its last part is not base64"))?;
        let key = match key.split_first() {
            Some((&checkpoint::ED25519, key)) => public(key),
            Some(_) | None => return Err(error("it is not an Ed25519 key")),
        };
        let key = key.ok_or_else(|| error("its bytes are not a valid Ed25519 key"))?;
        let read = VerifierKey { name: name.into(), key };
        let is_valid_name =
            !name.is_empty() && !name.chars().any(|c| c.is_whitespace() || c.is_control());
        if !is_valid_name {
            return Err(error("its name is empty or has spaces"));
        }
        // A key has exactly one text form. The comparison also checks the hash.
        if read.to_string() != text {
            return Err(error("its hash does not match: check for a mistyped character"));
        }
        Ok(read)
    }
}

impl TrustedKey {
    /// Returns whether this trusted key identifies `key`.
    pub fn is(&self, key: &VerifierKey) -> bool {
        match self {
            TrustedKey::Verifier(trusted) => trusted == key,
            TrustedKey::Bare(trusted) => *trusted == key.key,
            TrustedKey::Fingerprint(trusted) => *trusted == sha256(key.key.as_bytes()),
        }
    }

    /// Returns the key to verify checkpoints of this log. Returns `None` for a fingerprint, and for
    /// a verifier key of another log.
    pub fn key_for(&self, name: &str) -> Option<VerifyingKey> {
        match self {
            TrustedKey::Verifier(trusted) => (trusted.name == name).then_some(trusted.key),
            TrustedKey::Bare(trusted) => Some(*trusted),
            TrustedKey::Fingerprint(_) => None,
        }
    }
}

impl FromStr for TrustedKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<TrustedKey, KeyError> {
        let bytes = |digits: &str| -> Option<Hash> { hex::decode(digits).ok()?.try_into().ok() };
        if text.contains('+') {
            return text.parse().map(TrustedKey::Verifier);
        }
        let error = |why| KeyError { text: text.into(), why };
        if let Some(digits) = text.strip_prefix("sha256:") {
            let hash = bytes(digits)
                .ok_or_else(|| error("a fingerprint must have 64 hexadecimal digits"))?;
            return Ok(TrustedKey::Fingerprint(hash));
        }
        let key = bytes(text).and_then(|bytes| public(&bytes));
        let why = "expected a verifier key (<name>+<hash>+<base64>), 64 hexadecimal digits, or sha256:<fingerprint>";
        key.map(TrustedKey::Bare).ok_or_else(|| error(why))
    }
}

fn public(bytes: &[u8]) -> Option<VerifyingKey> {
    VerifyingKey::from_bytes(bytes.try_into().ok()?).ok()
}
