//! Index of a layout, `index.json`. A lock serializes its changes.

use std::{
    collections::HashMap,
    fs::{self, File, TryLockError},
    io::{self, ErrorKind},
    thread,
    time::{Duration, Instant},
};

use domain::digest::Digest;
use oci_spec::image::{Descriptor, ImageIndex, ImageIndexBuilder, MediaType, SCHEMA_VERSION};

use super::Layout;
use crate::{Blob, LayoutError, error::Context as _};

/// Longest wait for the lock of the index.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to take the lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);
/// Lock file of the index. A backup skips files with a leading dot.
pub(super) const LOCK: &str = ".index.lock";
/// Annotation of an index entry with the repository of the artifact.
pub(crate) const REPOSITORY: &str = "dev.stead.repository";

impl Layout {
    /// Adds an artifact of this repository to the index, so that other OCI tools find the artifact.
    /// The caller must have stored all its blobs.
    ///
    /// # Errors
    /// The errors of [`Layout::manifest`], and an index that cannot be read or written.
    pub fn add_to_index(&self, repository: &str, digest: &Digest) -> Result<(), LayoutError> {
        let lock = self.lock()?;
        self.add_locked(repository, digest, &lock)
    }

    /// Adds an artifact to the index, which the caller has locked.
    pub(crate) fn add_locked(
        &self,
        repository: &str,
        digest: &Digest,
        _lock: &File,
    ) -> Result<(), LayoutError> {
        let (document, size) = self.read_document(digest)?;
        let media_type = document.media_type().clone();
        let blob = Blob { media_type, digest: digest.clone(), size };
        let mut listed = blob.descriptor();
        listed.set_artifact_type(document.artifact_type());
        let repository = (REPOSITORY.to_owned(), repository.to_owned());
        listed.set_annotations(Some(HashMap::from([repository])));
        let mut index = self.index()?;
        if index.manifests().contains(&listed) {
            return Ok(());
        }
        // An entry of the same artifact with other fields is replaced. Listed twice, the artifact
        // would count as two versions of its repository.
        let is_same = |entry: &Descriptor| {
            entry.digest() == listed.digest() && entry.annotations() == listed.annotations()
        };
        let others = index.manifests().iter().filter(|entry| !is_same(entry)).cloned();
        let manifests = others.chain([listed.clone()]).collect();
        index.set_manifests(manifests);
        self.write_index(&index)?;
        Ok(())
    }

    /// Locks the index. The wait has a limit, because a stopped process may hold the lock.
    pub(crate) fn lock(&self) -> Result<File, LayoutError> {
        self.create()?;
        let context = || "cannot lock the index of the layout".into();
        let lock = File::create(self.dir.join(LOCK)).context(context)?;
        let until = Instant::now() + LOCK_TIMEOUT;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    thread::sleep(LOCK_INTERVAL)
                }
                Err(TryLockError::WouldBlock) => {
                    let held = io::Error::new(
                        ErrorKind::TimedOut,
                        "another process holds the lock; try again",
                    );
                    return Err(held).context(context);
                }
                Err(TryLockError::Error(error)) => return Err(error).context(context),
            }
        }
    }

    pub(crate) fn index(&self) -> Result<ImageIndex, LayoutError> {
        let path = self.dir.join("index.json");
        let context = || format!("cannot read {}", path.display());
        let read = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == ErrorKind::NotFound => empty_index(),
            Err(error) => Err(error),
        };
        read.context(context)
    }

    pub(crate) fn write_index(&self, index: &ImageIndex) -> Result<(), LayoutError> {
        let bytes = serde_json::to_vec(index).map_err(io::Error::from);
        self.replace("index.json", &bytes.context(|| "cannot write the index".into())?)
    }
}

fn empty_index() -> io::Result<ImageIndex> {
    let empty = ImageIndexBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageIndex)
        .manifests([]);
    empty.build().map_err(io::Error::other)
}
