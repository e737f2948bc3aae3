//! JSON in its one spelling (RFC 8785), for whatever is hashed or signed as JSON.
use serde::Serialize;

use crate::{Hash, sha256};

/// A value that has no JSON in that spelling (a key that is no text, a number that is none).
#[derive(Debug, thiserror::Error)]
#[error("not a value that has a canonical JSON: {0}")]
pub struct CanonicalError(#[from] serde_json::Error);

/// The one JSON of a value.
///
/// # Errors
/// [`CanonicalError`].
pub fn json<T: Serialize>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    Ok(serde_json_canonicalizer::to_vec(value)?)
}

/// The SHA-256 of the one JSON of a value.
///
/// # Errors
/// [`CanonicalError`].
pub fn hash<T: Serialize>(value: &T) -> Result<Hash, CanonicalError> {
    Ok(sha256(&json(value)?))
}
