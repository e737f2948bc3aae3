//! Failures to store or read content.

use std::io;

use domain::digest::Digest;

use crate::manifest::ManifestError;

/// Failure to store or read content of a layout.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// A file operation failed.
    #[error("{context}: {reason}")]
    Io { context: String, reason: io::Error },
    /// The content exceeds its size limit. If it was to be stored, nothing was stored.
    #[error("cannot use the content: it exceeds the limit of {limit} bytes; send less content")]
    TooLarge { limit: u64 },
    /// The content does not have the expected digest. Nothing was stored.
    #[error(
        "cannot store the content: its digest is {found}, expected {expected}; send the content again"
    )]
    WrongDigest { expected: Digest, found: Digest },
    /// The bytes of a stored blob do not match its digest.
    #[error("cannot use the blob {digest}: its stored bytes have the digest {found}")]
    Damaged { digest: Digest, found: Digest },
    /// A stored blob is not a manifest.
    #[error("cannot read {digest} as a manifest: {reason}")]
    Manifest { digest: Digest, reason: ManifestError },
}

/// Adds the failed operation to an I/O error.
pub(crate) trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, LayoutError>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, LayoutError> {
        self.map_err(|reason| LayoutError::Io { context: what(), reason })
    }
}
