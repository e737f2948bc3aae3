//! Canonical JSON (RFC 8785): one encoding per value, for hashes and signatures.
use serde::Serialize;

use crate::{Hash, sha256};

/// Value without canonical JSON: a key of a map is not a string, or a number is not finite.
#[derive(Debug, thiserror::Error)]
#[error("cannot write canonical JSON: {0}")]
pub struct CanonicalError(#[from] serde_json::Error);

/// Returns the canonical JSON of a value.
///
/// # Errors
/// [`CanonicalError`].
pub fn json<T: Serialize>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    Ok(serde_json_canonicalizer::to_vec(value)?)
}

/// Returns the SHA-256 of the canonical JSON of a value.
///
/// # Errors
/// [`CanonicalError`].
pub fn hash<T: Serialize>(value: &T) -> Result<Hash, CanonicalError> {
    Ok(sha256(&json(value)?))
}
