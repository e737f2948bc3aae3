//! Blob that is being written.

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use domain::digest::Digest;
use tempfile::NamedTempFile;

use crate::{
    LayoutError,
    digest::{Hasher, hex_of},
    error::Context as _,
};

/// Blob in a temporary file. [`BlobWriter::finish`] publishes the file, and a drop deletes it.
pub struct BlobWriter {
    file: NamedTempFile,
    hasher: Hasher,
    limit: u64,
    blobs: PathBuf,
}

impl BlobWriter {
    pub(crate) fn new(drafts: &Path, blobs: PathBuf, limit: u64) -> io::Result<BlobWriter> {
        let file = NamedTempFile::new_in(drafts)?;
        Ok(BlobWriter { file, hasher: Hasher::default(), limit, blobs })
    }

    /// Appends bytes. After an error, the caller must drop the writer.
    ///
    /// # Errors
    /// [`LayoutError::TooLarge`], or an I/O error.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), LayoutError> {
        if self.exceeds_limit(bytes) {
            return Err(LayoutError::TooLarge { limit: self.limit });
        }
        self.write_all(bytes).context(|| "cannot write a blob".into())
    }

    /// Returns the number of bytes that were written.
    pub fn length(&self) -> u64 {
        self.hasher.length()
    }

    /// Publishes the blob under its digest. The blob is durable before it gets its name. Replaces
    /// an existing blob, because that one may be corrupt.
    ///
    /// # Errors
    /// [`LayoutError::WrongDigest`] for a digest other than `expected`, or an I/O error.
    pub fn finish(self, expected: Option<&Digest>) -> Result<Digest, LayoutError> {
        let found = self.hasher.finish();
        if let Some(expected) = expected.filter(|expected| **expected != found) {
            return Err(LayoutError::WrongDigest { expected: expected.clone(), found });
        }
        let stored = persist(self.file, &self.blobs.join(hex_of(&found)));
        stored.context(|| format!("cannot store the blob {found}"))?;
        Ok(found)
    }

    fn exceeds_limit(&self, bytes: &[u8]) -> bool {
        self.length().saturating_add(bytes.len() as u64) > self.limit
    }
}

impl Write for BlobWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.exceeds_limit(bytes) {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Replaces a file atomically and durably.
pub(crate) fn replace(drafts: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(drafts)?;
    file.write_all(bytes)?;
    persist(file, path)
}

fn persist(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(path).map_err(|failed| failed.error)?;
    // A rename is durable only after a sync of the directory.
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}
