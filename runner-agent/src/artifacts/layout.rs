//! OCI image layout on disk: `oci-layout`, `index.json`, `blobs/sha256/…`.
//!
//! Several shims use one layout concurrently. A rename publishes each blob after it is complete and
//! verified. A rename replaces the index as well, under a lock.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Read, Seek, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use domain::digest::Digest;
use tempfile::NamedTempFile;

use super::{
    ArtifactError, Context, Descriptor, Hasher, ImageManifest, LAYER_TYPE,
    digest::hex_of,
    image::{INDEX_TYPE, Index},
    pack,
};

/// Longest wait for the lock of the index.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to take the lock.
const LOOK: Duration = Duration::from_millis(10);

/// OCI image layout in a directory.
#[derive(Debug, Clone)]
pub struct Layout {
    dir: PathBuf,
}

/// Blob that is being written.
pub(crate) struct Incoming {
    file: NamedTempFile,
    hasher: Hasher,
}

impl Layout {
    /// Opens the layout in `dir`, and creates it if it does not exist.
    ///
    /// # Errors
    /// Fails if the directory cannot be written.
    pub fn open(dir: &Path) -> Result<Self, ArtifactError> {
        let layout = Layout { dir: dir.to_owned() };
        fs::create_dir_all(layout.blobs())
            .context(|| format!("cannot create {}", dir.display()))?;
        if !dir.join("oci-layout").exists() {
            layout.replace("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        }
        Ok(layout)
    }

    /// Returns whether the layout has this blob.
    pub fn has(&self, digest: &Digest) -> bool {
        self.path(digest).is_file()
    }

    /// Stores these bytes as a blob. A blob that exists already is not an error.
    ///
    /// # Errors
    /// Fails if the blob cannot be written.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest, ArtifactError> {
        let mut incoming = self.incoming()?;
        incoming.write_all(bytes).context(|| "cannot write a blob".into())?;
        self.keep(incoming, None)
    }

    /// Stores a directory as the layer of a component.
    ///
    /// # Errors
    /// The errors of [`pack`](super::pack()), and a blob that cannot be written.
    pub fn put_packed(&self, dir: &Path) -> Result<Descriptor, ArtifactError> {
        let mut incoming = self.incoming()?;
        pack(dir, &mut incoming)?;
        let mut layer = Descriptor::of(LAYER_TYPE, b"");
        layer.size = incoming.length();
        layer.digest = self.keep(incoming, None)?;
        Ok(layer)
    }

    /// Opens a blob after hashing all its bytes again: another process may have changed the file.
    ///
    /// # Errors
    /// [`ArtifactError::WrongDigest`], or an I/O error.
    pub fn verified(&self, digest: &Digest) -> Result<File, ArtifactError> {
        let read = || format!("cannot read the blob {digest}");
        let mut file = File::open(self.path(digest)).context(read)?;
        let mut hasher = Hasher::default();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match file.read(&mut buffer).context(read)? {
                0 => break,
                length => hasher.update(&buffer[..length]),
            }
        }
        check(digest, hasher.finish())?;
        file.rewind().context(read)?;
        Ok(file)
    }

    /// Returns a stored manifest after verifying its digest.
    ///
    /// # Errors
    /// The errors of [`Layout::verified`], and a blob that is not a manifest.
    pub fn manifest(&self, digest: &Digest) -> Result<ImageManifest, ArtifactError> {
        let mut bytes = Vec::new();
        self.verified(digest)?
            .read_to_end(&mut bytes)
            .context(|| format!("cannot read the blob {digest}"))?;
        ImageManifest::read(digest, &bytes)
    }

    /// Returns whether the layout has this artifact with all its blobs.
    pub fn complete(&self, digest: &Digest) -> bool {
        self.has(digest)
            && self.manifest(digest).is_ok_and(|m| m.blobs().all(|blob| self.has(&blob.digest)))
    }

    /// Adds a complete artifact to the index, so that other OCI tools find it.
    ///
    /// # Errors
    /// Fails if the index cannot be read or written.
    pub fn list(&self, manifest: Descriptor) -> Result<(), ArtifactError> {
        let _lock = self.lock()?;
        let mut index = self.index()?;
        if !index.manifests.contains(&manifest) {
            index.manifests.push(manifest);
            self.write_index(&index)?;
        }
        Ok(())
    }

    /// Moves a blob whose bytes do not match its digest to `damaged/`, so that it can be pulled
    /// again. Returns the new path.
    ///
    /// # Errors
    /// Fails if the blob cannot be moved.
    pub fn quarantine(&self, digest: &Digest) -> Result<PathBuf, ArtifactError> {
        let aside = self.damaged().join(format!("{}.{}", hex_of(digest), ulid::Ulid::new()));
        let moved =
            fs::create_dir_all(self.damaged()).and_then(|()| fs::rename(self.path(digest), &aside));
        moved.context(|| format!("cannot move the damaged blob {digest} to another directory"))?;
        Ok(aside)
    }

    /// Locks the index. The wait has a limit, because a stopped process may hold the lock.
    pub(super) fn lock(&self) -> Result<File, ArtifactError> {
        let context = || "cannot lock the index of the layout".into();
        let lock = File::create(self.dir.join("index.lock")).context(context)?;
        let until = Instant::now() + LOCK_TIMEOUT;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(LOOK),
                Err(TryLockError::WouldBlock) => {
                    let held =
                        io::Error::new(ErrorKind::TimedOut, "another process holds the lock");
                    return Err(held).context(context);
                }
                Err(TryLockError::Error(error)) => return Err(error).context(context),
            }
        }
    }

    pub(super) fn write_index(&self, index: &Index) -> Result<(), ArtifactError> {
        let bytes = serde_json::to_vec(index).map_err(std::io::Error::from);
        self.replace("index.json", &bytes.context(|| "cannot write the index".into())?)
    }

    /// Starts a blob in a temporary file.
    pub(crate) fn incoming(&self) -> Result<Incoming, ArtifactError> {
        let file =
            NamedTempFile::new_in(&self.dir).context(|| "cannot create a temporary file".into())?;
        Ok(Incoming { file, hasher: Hasher::default() })
    }

    /// Publishes a blob under its digest. Rejects a digest other than `expected`.
    pub(crate) fn keep(
        &self,
        incoming: Incoming,
        expected: Option<&Digest>,
    ) -> Result<Digest, ArtifactError> {
        let found = incoming.hasher.finish();
        if let Some(expected) = expected {
            check(expected, found.clone())?;
        }
        let kept = || format!("cannot store the blob {found}");
        incoming.file.as_file().sync_data().context(kept)?;
        incoming.file.persist(self.path(&found)).map_err(|e| e.error).context(kept)?;
        crate::data::sync_parent(&self.path(&found)).context(kept)?;
        Ok(found)
    }

    /// Returns the path of a blob.
    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(hex_of(digest))
    }

    pub(super) fn root(&self) -> &Path {
        &self.dir
    }

    pub(super) fn damaged(&self) -> PathBuf {
        self.dir.join("damaged")
    }

    pub(super) fn blobs(&self) -> PathBuf {
        self.dir.join("blobs").join("sha256")
    }

    pub(super) fn index(&self) -> Result<Index, ArtifactError> {
        let path = self.dir.join("index.json");
        if !path.exists() {
            let media_type = Some(INDEX_TYPE.to_owned());
            return Ok(Index { schema_version: 2, media_type, manifests: Vec::new() });
        }
        let bytes = fs::read(&path).context(|| format!("cannot read {}", path.display()))?;
        let read = serde_json::from_slice(&bytes).map_err(std::io::Error::from);
        read.context(|| format!("{} is not an image index", path.display()))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), ArtifactError> {
        let write = || format!("cannot write {name}");
        let mut file = NamedTempFile::new_in(&self.dir).context(write)?;
        file.write_all(bytes).context(write)?;
        file.as_file().sync_data().context(write)?;
        file.persist(self.dir.join(name)).map_err(|e| e.error).context(write)?;
        Ok(())
    }
}

impl Incoming {
    pub(crate) fn length(&self) -> u64 {
        self.hasher.length()
    }
}

impl Write for Incoming {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

fn check(expected: &Digest, found: Digest) -> Result<(), ArtifactError> {
    if found == *expected {
        return Ok(());
    }
    Err(ArtifactError::WrongDigest { expected: expected.clone(), found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifacts::MANIFEST_TYPE;

    #[test]
    fn many_at_once_lose_nothing_from_the_index() {
        let dir = tempfile::tempdir().unwrap();
        let threads: Vec<_> = (0..8_u8)
            .map(|n| {
                let dir = dir.path().to_owned();
                std::thread::spawn(move || {
                    let layout = Layout::open(&dir).unwrap();
                    layout.put(&[n]).unwrap();
                    layout.list(Descriptor::of(MANIFEST_TYPE, &[n])).unwrap();
                    layout.list(Descriptor::of(MANIFEST_TYPE, &[n])).unwrap();
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let layout = Layout::open(dir.path()).unwrap();
        let index = layout.index().unwrap();
        assert_eq!(index.manifests.len(), 8);
        assert!(index.manifests.iter().all(|manifest| layout.has(&manifest.digest)));
        assert_eq!(
            fs::read(dir.path().join("oci-layout")).unwrap(),
            br#"{"imageLayoutVersion":"1.0.0"}"#
        );
    }

    #[test]
    fn nobody_waits_for_ever_for_a_process_that_holds_the_index() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        let held = File::create(dir.path().join("index.lock")).unwrap();
        held.lock().unwrap();
        let listed = layout.list(Descriptor::of(MANIFEST_TYPE, b"x"));
        assert!(
            matches!(listed, Err(ArtifactError::Io { source, .. }) if source.kind() == ErrorKind::TimedOut)
        );
        drop(held);
        layout.list(Descriptor::of(MANIFEST_TYPE, b"x")).unwrap();
    }

    #[test]
    fn a_blob_that_was_changed_on_disk_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        let digest = layout.put(b"good").unwrap();
        fs::write(layout.path(&digest), b"evil").unwrap();
        assert!(matches!(layout.verified(&digest), Err(ArtifactError::WrongDigest { .. })));
    }

    #[test]
    fn an_artifact_is_complete_with_its_last_blob() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        let image = ImageManifest::component(Descriptor::of(LAYER_TYPE, b"tar"));
        let digest = layout.put(&serde_json::to_vec(&image).unwrap()).unwrap();
        layout.put(b"tar").unwrap();
        assert!(!layout.complete(&digest), "its config is missing");
        layout.put(b"{}").unwrap();
        assert!(layout.complete(&digest));
        assert_eq!(layout.manifest(&digest).unwrap(), image);
    }
}
