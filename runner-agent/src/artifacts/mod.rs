//! Immutable bytes by digest: how they are packed, where they rest, how they travel.
//!
//! ```text
//!  directory ──pack──▶ tar ──push──▶ Runner listener /v2/…          (build jobs)
//!  Runner listener /v2/… ──pull──▶ Layout ──open──▶ directory       (every other job)
//! ```
//!
//! What is deployed comes from the install's own [`Layout`] only; nothing here believes a size or a
//! digest that it has not computed itself.

mod budget;
mod digest;
mod image;
mod layout;
mod pack;
mod registry;
mod unpack;

pub use digest::{Hasher, sha256, sha256_file};
pub use image::{ARTIFACT_TYPE, Descriptor, ImageManifest, LAYER_TYPE, MANIFEST_TYPE};
pub use layout::Layout;
pub use pack::pack;
pub use registry::{pull, pull_blob, push};
pub use unpack::{Limits, unpack};

use std::io;

use domain::digest::Digest;

/// Why an artifact could not be packed, kept or moved.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("{path} cannot be packed: {why}")]
    Unpackable { path: String, why: &'static str },
    #[error("{path:?} in the archive is refused: {why}")]
    Hostile { path: String, why: &'static str },
    #[error("the archive is larger than {limit} {unit}")]
    TooLarge { limit: u64, unit: &'static str },
    #[error("the bytes of {expected} are those of {found}")]
    WrongDigest { expected: Digest, found: Digest },
    #[error("the manifest {digest} is not understood: {why}")]
    BadManifest { digest: Digest, why: String },
    #[error("{digest} is not in the registry, or this job may not have it")]
    Missing { digest: Digest },
    #[error("the registry answered {status} to {request}")]
    Registry { request: String, status: u16 },
    #[error("the registry cannot be reached for {request}")]
    Unreachable { request: String, source: reqwest::Error },
    #[error("{context}")]
    Io { context: String, source: io::Error },
}

/// What was being done when the disk said no.
pub(crate) trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, ArtifactError>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, ArtifactError> {
        self.map_err(|source| ArtifactError::Io { context: what(), source })
    }
}
