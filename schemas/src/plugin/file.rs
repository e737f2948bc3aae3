//! Files that replace a part of a message.

use std::path::PathBuf;

use domain::digest::Digest;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

/// Regular file in the work directory of the job that replaces a part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// Absolute path.
    pub path: PathBuf,
    /// SHA-256 of the content.
    pub digest: Digest,
    /// Size of the content in bytes, at most [`super::FILE_LIMIT`].
    pub size_bytes: u64,
}

impl FileRef {
    /// Returns the reference of a file with this content.
    pub fn of(path: PathBuf, content: &[u8]) -> Self {
        FileRef { path, digest: digest_of(content), size_bytes: content.len() as u64 }
    }

    /// Parses the content of the file as JSON.
    ///
    /// # Errors
    /// Fails if the content has another size or digest, or is not the expected JSON.
    pub fn parse<T: serde::de::DeserializeOwned>(&self, content: &[u8]) -> Result<T, FileError> {
        let size = content.len() as u64;
        if size != self.size_bytes {
            return Err(FileError::Size { found: size, expected: self.size_bytes });
        }
        let found = digest_of(content);
        if found != self.digest {
            return Err(FileError::Digest { found, expected: self.digest.clone() });
        }
        serde_json::from_slice(content).map_err(FileError::Json)
    }
}

fn digest_of(content: &[u8]) -> Digest {
    <[u8; 32]>::from(sha2::Sha256::digest(content)).into()
}

/// Reason why a file does not match its reference.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Another size.
    #[error("it has {found} bytes, but the message requires {expected}")]
    Size {
        /// Size of the content.
        found: u64,
        /// Size in the reference.
        expected: u64,
    },
    /// Another digest.
    #[error("its digest is {found}, but the message requires {expected}")]
    Digest {
        /// Digest of the content.
        found: Digest,
        /// Digest in the reference.
        expected: Digest,
    },
    /// Invalid content.
    #[error("it is not the expected JSON: {0}")]
    Json(serde_json::Error),
}
