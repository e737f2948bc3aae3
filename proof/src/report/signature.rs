//! Signatures of runners. Their verification can be deferred.
use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signature as Ed25519, VerifyingKey};

/// Forged, altered or unreadable report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("position {position}: {what}")]
pub struct ReportError {
    /// Position of the event in the log.
    pub position: u64,
    /// Description of the mismatch, for a user.
    pub what: String,
}

impl ReportError {
    pub(super) fn of(position: u64, runner: &str, why: &str) -> ReportError {
        let what = format!("forged report in the name of runner {runner}: {why}");
        ReportError { position, what }
    }
}

/// Signature of a runner, not yet verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub(super) position: u64,
    pub(super) runner: String,
    /// Key of the runner at this position, hexadecimal.
    pub(super) key: String,
    /// Bytes that the signature covers: the pre-authentication encoding of the statement.
    pub(super) signed_bytes: Vec<u8>,
    /// Signature, base64.
    pub(super) signature: String,
}

impl Signature {
    /// Verifies the signature with the runner's key at this position.
    ///
    /// # Errors
    /// [`ReportError`]: the signature does not match the runner's key and the event.
    pub fn check(&self) -> Result<(), ReportError> {
        self.check_by(key(&self.key).as_ref())
    }

    /// Verifies all signatures and returns the failures. Each key is parsed once, because parsing
    /// takes a sixth of the time of a verification.
    pub fn check_all(all: &[Signature]) -> impl Iterator<Item = ReportError> {
        let mut keys = HashMap::new();
        all.iter().filter_map(move |one| {
            let key = keys.entry(&*one.key).or_insert_with(|| key(&one.key));
            one.check_by(key.as_ref()).err()
        })
    }

    fn check_by(&self, key: Option<&VerifyingKey>) -> Result<(), ReportError> {
        if key.and_then(|key| self.verifies(key)) == Some(true) {
            return Ok(());
        }
        let why = "its signature does not match the runner's key and the event";
        Err(ReportError::of(self.position, &self.runner, why))
    }

    fn verifies(&self, key: &VerifyingKey) -> Option<bool> {
        let signature = Ed25519::from_slice(&BASE64.decode(&self.signature).ok()?).ok()?;
        Some(key.verify_strict(&self.signed_bytes, &signature).is_ok())
    }
}

fn key(hexadecimal: &str) -> Option<VerifyingKey> {
    let key = <[u8; 32]>::try_from(hex::decode(hexadecimal).ok()?).ok()?;
    VerifyingKey::from_bytes(&key).ok()
}
