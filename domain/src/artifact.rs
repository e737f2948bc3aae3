//! What a build made, and where it is.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// The immutable output of a build, by the digest of its OCI manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Artifact {
    /// `<app>/<component>`, as the artifact endpoint has it.
    pub repository: String,
    /// The digest of the OCI manifest.
    pub digest: Digest,
    /// The manifest and everything it names, in bytes.
    pub size_bytes: u64,
}
