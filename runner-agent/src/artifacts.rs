//! Immutable content-addressed artifacts: packing and transfer.
//!
//! ```text
//!  directory ──pack──▶ tar ──push──▶ Runner listener /v2/…          (build jobs)
//!  Runner listener /v2/… ──pull──▶ Layout ──unpack──▶ directory     (other jobs)
//! ```
//!
//! Jobs deploy only from the install's own [`oci_layout::Layout`]. The runner verifies the digest
//! of every blob that it pulls.

mod component;
mod pack;
mod registry;
mod unpack;

pub use component::{
    ARTIFACT_TYPE, DIRECTORY, LAYER_TYPE, component, component_directory, component_layer,
    is_archive, is_compressed,
};
pub use pack::{pack, pack_into};
pub use registry::{pull, pull_blob, pull_manifest, push};
pub use unpack::{Limits, unpack};

use std::io;

use domain::digest::Digest;
use oci_layout::LayoutError;

/// Failure to pack, store or transfer an artifact.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("cannot pack {path}: {why}")]
    Unpackable { path: String, why: &'static str },
    #[error("cannot unpack {path:?}: {why}")]
    Hostile { path: String, why: &'static str },
    #[error("cannot use the artifact: it exceeds the limit of {limit} {unit}")]
    TooLarge { limit: u64, unit: &'static str },
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("invalid manifest {digest}: {why}")]
    BadManifest { digest: Digest, why: String },
    #[error("cannot pull {digest}: the registry does not have it, or the job must not read it")]
    Missing { digest: Digest },
    #[error("cannot complete {request}: the registry responded with status {status}{detail}")]
    Registry { request: String, status: u16, detail: String },
    #[error("cannot build the request {request} to the registry")]
    Unreachable { request: String, source: reqwest::Error },
    #[error("{context}")]
    Io { context: String, source: io::Error },
}

/// Adds the failed operation to an I/O error.
pub(crate) trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, ArtifactError>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, ArtifactError> {
        self.map_err(|source| ArtifactError::Io { context: what(), source })
    }
}
