//! Failures to store or read an artifact.
use std::io;

use oci_layout::{LayoutError, ManifestError};
use oci_registry::RegistryError;

use super::vendor;
use crate::problem::Problem;

/// Reasons why an artifact cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The layout rejected the content, or a file operation failed.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A file or directory cannot be accessed.
    #[error("cannot access {path}: {reason}")]
    Io { path: String, reason: io::Error },
    /// The request body could not be read to its end.
    #[error("cannot read the request body: {0}; send the blob again")]
    BodyEnded(String),
    /// The content is not an image manifest.
    #[error("invalid image manifest: {0}")]
    Manifest(#[from] ManifestError),
    /// The registry of the vendor did not send the artifact.
    #[error(transparent)]
    Vendor(#[from] RegistryError),
}

impl ArtifactError {
    /// Returns the problem for a runner, if the registry of the vendor is the cause.
    pub fn vendor_problem(&self) -> Option<Problem> {
        match self {
            ArtifactError::Vendor(error) => Some(vendor::problem(error)),
            ArtifactError::Layout(_)
            | ArtifactError::Io { .. }
            | ArtifactError::BodyEnded(_)
            | ArtifactError::Manifest(_) => None,
        }
    }
}
