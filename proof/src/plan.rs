//! What a person approves: the digest of a plan.
//!
//! It covers the plan file, the summary that the person read, the manifest that the plan was made by and the
//! tool that made it, so that the apply can refuse anything else.
use serde::Serialize;

use crate::{
    Hash,
    canonical::{self, CanonicalError},
    sha256_of,
};

/// The digest of a plan from what it is made of.
///
/// `file` and `manifest` are hashes of the plan file and of the plan job's manifest; `tool` is its name and
/// version in one text, such as `terraform 1.9.8`.
///
/// # Errors
/// [`CanonicalError`] if the summary has no canonical JSON.
pub fn digest<S: Serialize>(
    file: &Hash,
    summary: &S,
    manifest: &Hash,
    tool: &str,
) -> Result<Hash, CanonicalError> {
    Ok(digest_of(file, &canonical::hash(summary)?, manifest, tool))
}

/// The same from the hash of the summary's canonical JSON.
pub fn digest_of(file: &Hash, summary: &Hash, manifest: &Hash, tool: &str) -> Hash {
    // A tool's name and version come nowhere near 4 GiB.
    let length = u32::try_from(tool.len()).unwrap_or(u32::MAX).to_be_bytes();
    sha256_of(&[b"stead/plan/v1\n", file, summary, manifest, &length, tool.as_bytes()])
}
