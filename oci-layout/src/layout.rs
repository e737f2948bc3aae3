//! OCI image layout in a directory: `oci-layout`, `index.json`, `blobs/sha256/…`.
//!
//! Several processes can use one layout concurrently. A rename publishes each blob after all its
//! bytes are on disk. A rename replaces the index as well, under a lock.

mod index;

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Seek},
    path::{Path, PathBuf},
};

use domain::digest::Digest;

pub(crate) use self::index::REPOSITORY;
use crate::{
    ArtifactManifest, BlobWriter, Document, LayoutError, ListedImage, MANIFEST_LIMIT,
    PlatformIndex,
    blob::replace,
    digest::{hex_of, sha256, sha256_reader},
    error::Context as _,
};

/// Content of the file `oci-layout`.
const MARKER: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

#[derive(Debug, Clone)]
pub struct Layout {
    dir: PathBuf,
    drafts: PathBuf,
}

impl Layout {
    /// Returns the layout in `dir`. The first write creates the directory.
    pub fn new(dir: impl Into<PathBuf>) -> Layout {
        let dir = dir.into();
        Layout { drafts: dir.clone(), dir }
    }

    /// Uses another directory of the same file system for temporary files.
    pub fn with_drafts(self, drafts: impl Into<PathBuf>) -> Layout {
        Layout { drafts: drafts.into(), ..self }
    }

    pub fn has(&self, digest: &Digest) -> bool {
        self.path(digest).is_file()
    }

    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(hex_of(digest))
    }

    /// Starts a blob of at most `limit` bytes.
    ///
    /// # Errors
    /// Fails if the layout cannot be written.
    pub fn writer(&self, limit: u64) -> Result<BlobWriter, LayoutError> {
        self.create()?;
        let writer = BlobWriter::new(&self.drafts, self.blobs(), limit);
        writer.context(|| "cannot create a temporary file".into())
    }

    /// Stores these bytes as a blob. A blob that exists already is not an error.
    ///
    /// # Errors
    /// Fails if the blob cannot be written.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest, LayoutError> {
        let mut writer = self.writer(u64::MAX)?;
        writer.append(bytes)?;
        writer.finish(None)
    }

    /// Opens a blob after verifying its digest, because another process may have changed the file.
    ///
    /// # Errors
    /// [`LayoutError::Damaged`], or an I/O error.
    pub fn verified(&self, digest: &Digest) -> Result<File, LayoutError> {
        let read = || format!("cannot read the blob {digest}");
        let mut file = File::open(self.path(digest)).context(read)?;
        check(digest, sha256_reader(&mut file).context(read)?)?;
        file.rewind().context(read)?;
        Ok(file)
    }

    /// Returns a stored manifest after verifying its digest.
    ///
    /// # Errors
    /// The errors of [`Layout::verified`], and a blob that is too large or not a manifest.
    pub fn manifest(&self, digest: &Digest) -> Result<ArtifactManifest, LayoutError> {
        let bytes = self.small_blob(digest)?;
        let invalid = |reason| LayoutError::Manifest { digest: digest.clone(), reason };
        ArtifactManifest::parse(&bytes).map_err(invalid)
    }

    /// Returns a stored index of an artifact with several platforms, after verifying its digest.
    ///
    /// # Errors
    /// The errors of [`Layout::verified`], and a blob that is too large or not an index.
    pub fn platform_index(&self, digest: &Digest) -> Result<PlatformIndex, LayoutError> {
        let bytes = self.small_blob(digest)?;
        let invalid = |reason| LayoutError::Manifest { digest: digest.clone(), reason };
        PlatformIndex::parse(&bytes).map_err(invalid)
    }

    /// Returns a stored image manifest or image index, after verifying its digest.
    ///
    /// # Errors
    /// The errors of [`Layout::verified`], and a blob that is too large or neither of them.
    pub fn document(&self, digest: &Digest) -> Result<Document, LayoutError> {
        self.read_document(digest).map(|(document, _)| document)
    }

    /// Returns the total bytes of an artifact as its documents state them: the document, its
    /// manifests, and their blobs.
    ///
    /// # Errors
    /// The errors of [`Layout::document`].
    pub fn artifact_size(&self, digest: &Digest) -> Result<u64, LayoutError> {
        let (document, own) = self.read_document(digest)?;
        let sizes: Result<Vec<u64>, LayoutError> = match &document {
            Document::Manifest(manifest) => Ok(manifest.blobs().map(|blob| blob.size).collect()),
            Document::List(list) => {
                let size = |image: &ListedImage| {
                    let manifest = self.manifest(&image.blob.digest)?;
                    let blobs = manifest.blobs().map(|blob| blob.size);
                    Ok(blobs.fold(image.blob.size, u64::saturating_add))
                };
                list.images().iter().map(size).collect()
            }
        };
        Ok(sizes?.into_iter().fold(own, u64::saturating_add))
    }

    /// Returns whether the layout has this artifact with all its blobs.
    pub fn complete(&self, digest: &Digest) -> bool {
        let has_blobs = |of: &ArtifactManifest| of.blobs().all(|blob| self.has(&blob.digest));
        let has_image = |image: &ListedImage| {
            let digest = &image.blob.digest;
            self.has(digest) && self.manifest(digest).is_ok_and(|manifest| has_blobs(&manifest))
        };
        let is_complete = |document| match document {
            Document::Manifest(manifest) => has_blobs(&manifest),
            Document::List(list) => list.images().iter().all(has_image),
        };
        self.has(digest) && self.document(digest).is_ok_and(is_complete)
    }

    /// Moves a blob whose bytes do not match its digest to `quarantine/`, so that it can be
    /// pulled again. Returns the new path: `<hex digest>.<number>`, a new number for each corrupt
    /// copy.
    ///
    /// # Errors
    /// Fails if the blob cannot be moved.
    pub fn quarantine(&self, digest: &Digest) -> Result<PathBuf, LayoutError> {
        let quarantine = self.quarantine_dir();
        let path_of = |copy: u32| quarantine.join(format!("{}.{copy}", hex_of(digest)));
        let mut copy = 1;
        while path_of(copy).exists() {
            copy += 1;
        }
        let path = path_of(copy);
        let moved =
            fs::create_dir_all(&quarantine).and_then(|()| fs::rename(self.path(digest), &path));
        moved.context(|| format!("cannot quarantine the corrupt blob {digest}"))?;
        Ok(path)
    }

    pub(crate) fn drafts(&self) -> &Path {
        &self.drafts
    }

    pub(crate) fn quarantine_dir(&self) -> PathBuf {
        self.dir.join("quarantine")
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.dir.join("blobs").join("sha256")
    }

    fn create(&self) -> Result<(), LayoutError> {
        for dir in [&self.blobs(), &self.drafts] {
            create_durably(dir).context(|| format!("cannot create {}", dir.display()))?;
        }
        if self.dir.join("oci-layout").exists() {
            return Ok(());
        }
        self.replace("oci-layout", MARKER)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), LayoutError> {
        let path = self.dir.join(name);
        replace(&self.drafts, &path, bytes).context(|| format!("cannot write {}", path.display()))
    }

    /// Reads a document. Returns it with its size in bytes.
    fn read_document(&self, digest: &Digest) -> Result<(Document, u64), LayoutError> {
        let bytes = self.small_blob(digest)?;
        let document = Document::parse(&bytes);
        let invalid = |reason| LayoutError::Manifest { digest: digest.clone(), reason };
        Ok((document.map_err(invalid)?, bytes.len() as u64))
    }

    /// Reads a blob after verifying its digest. Does not read more than one byte above
    /// [`MANIFEST_LIMIT`].
    fn small_blob(&self, digest: &Digest) -> Result<Vec<u8>, LayoutError> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(digest));
        let read = file.and_then(|file| file.take(MANIFEST_LIMIT + 1).read_to_end(&mut bytes));
        let size = read.context(|| format!("cannot read the blob {digest}"))? as u64;
        if size > MANIFEST_LIMIT {
            return Err(LayoutError::TooLarge { limit: MANIFEST_LIMIT });
        }
        check(digest, sha256(&bytes))?;
        Ok(bytes)
    }
}

/// Creates a directory with its parents. Syncs each parent, so that a blob that is durable in the
/// directory does not disappear with the directory after a power failure.
fn create_durably(dir: &Path) -> io::Result<()> {
    let Some(parent) = dir.parent() else { return fs::create_dir_all(dir) };
    if dir.is_dir() {
        // The process that created it may have been killed before the sync.
        return File::open(parent)?.sync_all();
    }
    create_durably(parent)?;
    match fs::create_dir(dir) {
        // Another process created it at the same time.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        created => created?,
    }
    File::open(parent)?.sync_all()
}

fn check(digest: &Digest, found: Digest) -> Result<(), LayoutError> {
    if found == *digest {
        return Ok(());
    }
    Err(LayoutError::Damaged { digest: digest.clone(), found })
}

#[cfg(test)]
mod tests;
