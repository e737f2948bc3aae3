//! OCI image layout in a directory: `oci-layout`, `index.json`, `blobs/sha256/…`.
//!
//! Several processes can use one layout concurrently. A rename publishes each blob after all its
//! bytes are on disk. A rename replaces the index as well, under a lock.

use std::{
    collections::HashMap,
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Read, Seek},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use domain::digest::Digest;
use oci_spec::image::{Descriptor, ImageIndex, ImageIndexBuilder, MediaType, SCHEMA_VERSION};

use crate::{
    ArtifactManifest, Blob, BlobWriter, Document, LayoutError, ListedImage, MANIFEST_LIMIT,
    PlatformIndex,
    blob::replace,
    digest::{hex_of, sha256, sha256_reader},
    error::Context as _,
};

/// Longest wait for the lock of the index.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to take the lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);
/// Content of the file `oci-layout`.
const MARKER: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
/// Lock file of the index. A backup skips files with a leading dot.
const LOCK: &str = ".index.lock";
/// Annotation of an index entry with the repository of the artifact.
pub(crate) const REPOSITORY: &str = "dev.stead.repository";

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

    /// Adds an artifact of this repository to the index, so that other OCI tools find the artifact.
    /// The caller must have stored all its blobs.
    ///
    /// # Errors
    /// The errors of [`Layout::manifest`], and an index that cannot be read or written.
    pub fn add_to_index(&self, repository: &str, digest: &Digest) -> Result<(), LayoutError> {
        let (document, size) = self.read_document(digest)?;
        let media_type = document.media_type().clone();
        let blob = Blob { media_type, digest: digest.clone(), size };
        let mut listed = blob.descriptor();
        listed.set_artifact_type(document.artifact_type());
        let repository = (REPOSITORY.to_owned(), repository.to_owned());
        listed.set_annotations(Some(HashMap::from([repository])));
        let _lock = self.lock()?;
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
    if dir.is_dir() {
        return Ok(());
    }
    let Some(parent) = dir.parent() else { return fs::create_dir_all(dir) };
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

fn empty_index() -> io::Result<ImageIndex> {
    let empty = ImageIndexBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageIndex)
        .manifests([]);
    empty.build().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::manifest;

    /// Stores a manifest whose blobs are missing.
    fn stored(layout: &Layout, layer: &[u8]) -> Digest {
        layout.put(&manifest(layer).to_bytes().unwrap()).unwrap()
    }

    #[test]
    fn concurrent_writers_lose_no_index_entry() {
        let dir = tempfile::tempdir().unwrap();
        let threads: Vec<_> = (0..8_u8)
            .map(|n| {
                let layout = Layout::new(dir.path());
                std::thread::spawn(move || {
                    let digest = stored(&layout, &[n]);
                    layout.add_to_index("shop/web", &digest).unwrap();
                    layout.add_to_index("shop/web", &digest).unwrap();
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let layout = Layout::new(dir.path());
        let index = layout.index().unwrap();
        assert_eq!(index.manifests().len(), 8);
        let listed = index.manifests().iter().map(|listed| Blob::try_from(listed).unwrap());
        assert!(listed.into_iter().all(|blob| layout.has(&blob.digest)));
        assert_eq!(fs::read(dir.path().join("oci-layout")).unwrap(), MARKER);
    }

    #[test]
    fn lock_of_another_process_is_a_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let digest = stored(&layout, b"x");
        let held = File::create(dir.path().join(LOCK)).unwrap();
        held.lock().unwrap();
        let listed = layout.add_to_index("shop/web", &digest);
        assert!(
            matches!(listed, Err(LayoutError::Io { reason, .. }) if reason.kind() == ErrorKind::TimedOut)
        );
        drop(held);
        layout.add_to_index("shop/web", &digest).unwrap();
    }

    #[test]
    fn a_blob_that_was_changed_on_disk_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let digest = layout.put(b"good").unwrap();
        fs::write(layout.path(&digest), b"evil").unwrap();
        assert!(matches!(layout.verified(&digest), Err(LayoutError::Damaged { .. })));
    }

    #[test]
    fn a_blob_with_a_wrong_digest_or_beyond_its_limit_is_not_stored() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let mut writer = layout.writer(4).unwrap();
        writer.append(b"evil").unwrap();
        let finished = writer.finish(Some(&sha256(b"good")));
        assert!(matches!(finished, Err(LayoutError::WrongDigest { .. })));
        let mut writer = layout.writer(4).unwrap();
        writer.append(b"goo").unwrap();
        assert!(matches!(writer.append(b"ds"), Err(LayoutError::TooLarge { limit: 4 })));
        drop(writer);
        assert_eq!(fs::read_dir(layout.blobs()).unwrap().count(), 0);
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 2, "only blobs and oci-layout, no temporary file");
    }

    #[test]
    fn an_artifact_is_complete_with_its_last_blob() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let digest = stored(&layout, b"tar");
        layout.put(b"tar").unwrap();
        assert!(!layout.complete(&digest), "its config is missing");
        layout.put(b"{}").unwrap();
        assert!(layout.complete(&digest));
        assert_eq!(layout.manifest(&digest).unwrap(), manifest(b"tar"));
    }

    #[test]
    fn a_large_blob_is_not_read_as_a_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let limit = usize::try_from(MANIFEST_LIMIT).unwrap();
        let digest = layout.put(&vec![b' '; limit + 1]).unwrap();
        let read = layout.manifest(&digest);
        assert!(matches!(read, Err(LayoutError::TooLarge { limit: MANIFEST_LIMIT })));
    }
}
