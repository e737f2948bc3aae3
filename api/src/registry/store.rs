//! Registry on disk: one layout per repository.
use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::body::Body;
use domain::{digest::Digest, ids::RunnerId};
use futures::StreamExt as _;
use oci_layout::{ArtifactManifest, Blob, Document, Layout, LayoutError, PlatformIndex};
use oci_registry::VendorLocation;
use tokio::{
    io::{AsyncSeekExt as _, SeekFrom},
    sync::Mutex,
};
use tokio_util::io::ReaderStream;

use super::{
    Repository,
    error::ArtifactError,
    vendor::{self, VendorRegistry},
};
use crate::reach::Reachable;

/// Registry of the vendor's artifacts. Several servers can share its directory.
pub struct Registry {
    pub(super) directory: PathBuf,
    max_blob_bytes: u64,
    index: Arc<Mutex<()>>,
    pub(super) vendor: Option<Arc<VendorRegistry>>,
}

/// Time without a write after which an upload is abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// Part of a blob that a runner wants.
pub struct Wanted {
    pub runner: RunnerId,
    /// Size that its manifest states. A manifest or an index has none.
    pub size: Option<u64>,
    /// Offset of the first byte.
    pub from: u64,
}

/// Bytes of a blob, from an offset.
pub struct FoundBlob {
    /// Bytes of the whole blob.
    pub length: u64,
    /// Offset of the first byte of the body.
    pub from: u64,
    pub body: Body,
}

/// Deletes uploads without a write for [`ABANDONED_AFTER`]. Another server that shares the
/// directory can still write the others.
fn delete_abandoned(uploads: &Path) -> Result<(), ArtifactError> {
    for upload in fs::read_dir(uploads).map_err(at(uploads))? {
        let upload = upload.map_err(at(uploads))?;
        let written = match upload.metadata().and_then(|upload| upload.modified()) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => continue,
            written => written.map_err(at(&upload.path()))?,
        };
        if written.elapsed().is_ok_and(|age| age > ABANDONED_AFTER) {
            match fs::remove_file(upload.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(at(&upload.path())(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
    Ok(())
}

impl Registry {
    /// Opens the registry in the data directory and deletes abandoned uploads. Artifacts that the
    /// directory does not have are read from the registry of the vendor, which may refer to the
    /// addresses `Reachable`.
    ///
    /// # Errors
    /// A file operation failed, or the address of the vendor's registry is invalid.
    pub fn open(
        data: &Path,
        max_blob_bytes: u64,
        vendor: Option<(VendorLocation, Reachable)>,
    ) -> Result<Registry, ArtifactError> {
        let (directory, index) = (data.join("registry"), Arc::default());
        let location = vendor.as_ref().map(|(location, _)| location.clone());
        let vendor = vendor.map(|(location, reach)| VendorRegistry::new(location, reach));
        let vendor = vendor.transpose()?.map(Arc::new);
        let registry = Registry { directory, max_blob_bytes, index, vendor };
        let uploads = registry.uploads();
        fs::create_dir_all(&uploads).map_err(at(&uploads))?;
        delete_abandoned(&uploads)?;
        // Only the server's user may read the vendor's modules. The mode is also set on an existing
        // directory.
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&registry.directory, private).map_err(at(&registry.directory))?;
        vendor::record(&registry.directory, location.as_ref()).map_err(at(&registry.directory))?;
        Ok(registry)
    }

    fn uploads(&self) -> PathBuf {
        self.directory.join(".uploads")
    }

    /// Returns the registry of the vendor, if it can have this artifact and the layout does not.
    async fn vendor(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Option<&Arc<VendorRegistry>> {
        let vendor = self.vendor.as_ref().filter(|vendor| vendor.can_have(repository))?;
        let is_stored = repository.is_plugin() || self.size(repository, digest).await.is_some();
        (!is_stored).then_some(vendor)
    }

    pub(super) fn layout(&self, repository: &Repository) -> Layout {
        Layout::new(self.directory.join(repository.path())).with_drafts(self.uploads())
    }

    /// Size of a blob in the directory, or `None` if it cannot be accessed.
    pub async fn size(&self, repository: &Repository, digest: &Digest) -> Option<u64> {
        let found = tokio::fs::metadata(self.layout(repository).path(digest)).await;
        found.ok().map(|found| found.len())
    }

    /// Size of a blob whose manifest states `size`. The registry of the vendor is not asked, because
    /// a request to it would only confirm the manifest.
    pub async fn size_of(
        &self,
        repository: &Repository,
        digest: &Digest,
        size: u64,
    ) -> Option<u64> {
        match self.vendor(repository, digest).await {
            Some(_) => Some(size),
            None => self.size(repository, digest).await,
        }
    }

    /// Reads a blob from an offset if the offset is within the blob, otherwise from the beginning.
    /// Returns `None` if the blob does not exist.
    ///
    /// # Errors
    /// A file operation failed for another reason, or the registry of the vendor failed.
    pub async fn read(
        &self,
        repository: &Repository,
        digest: &Digest,
        wanted: Wanted,
    ) -> Result<Option<FoundBlob>, ArtifactError> {
        let within = |length: u64| if wanted.from < length { wanted.from } else { 0 };
        if let Some(vendor) = self.vendor(repository, digest).await {
            let Some(length) = wanted.size else {
                let bytes = vendor.document(repository, digest).await?.bytes.clone();
                let length = bytes.len() as u64;
                return Ok(Some(FoundBlob { length, from: 0, body: Body::from(bytes) }));
            };
            let media_type = "application/octet-stream".into();
            let blob = Blob { media_type, digest: digest.clone(), size: length };
            let from = within(length);
            let body = vendor.blob(repository, blob, (wanted.runner, from)).await?;
            return Ok(Some(FoundBlob { length, from, body }));
        }
        let path = self.layout(repository).path(digest);
        let mut file = match tokio::fs::File::open(&path).await {
            Ok(file) => file,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(at(&path)(why)),
        };
        let length = file.metadata().await.map_err(at(&path))?.len();
        let from = within(length);
        file.seek(SeekFrom::Start(from)).await.map_err(at(&path))?;
        let body = Body::from_stream(ReaderStream::with_capacity(file, 64 * 1024));
        Ok(Some(FoundBlob { length, from, body }))
    }

    /// Reads an image manifest of the repository. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// A file operation failed, or the content is corrupt or not a manifest.
    pub async fn manifest(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<Option<ArtifactManifest>, ArtifactError> {
        let (layout, digest) = (self.layout(repository), digest.clone());
        run_blocking(move || layout.has(&digest).then(|| layout.manifest(&digest)).transpose())
            .await
    }

    /// Reads an image manifest or an image index of the directory. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// A file operation failed, or the content is corrupt or neither of them.
    pub async fn stored_document(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<Option<Document>, ArtifactError> {
        let (layout, digest) = (self.layout(repository), digest.clone());
        run_blocking(move || layout.has(&digest).then(|| layout.document(&digest)).transpose())
            .await
    }

    /// Reads an image manifest or an image index. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// The errors of [`Registry::stored_document`], or the registry of the vendor failed.
    pub async fn document(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<Option<Document>, ArtifactError> {
        match self.vendor(repository, digest).await {
            Some(vendor) => Ok(Some(vendor.document(repository, digest).await?.document.clone())),
            None => self.stored_document(repository, digest).await,
        }
    }

    /// Total bytes of an artifact: its documents and their blobs. Returns `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// The errors of [`Registry::document`].
    pub async fn artifact_size(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<Option<u64>, ArtifactError> {
        if let Some(vendor) = self.vendor(repository, digest).await {
            return Ok(Some(vendor.artifact_size(repository, digest).await?));
        }
        let (layout, digest) = (self.layout(repository), digest.clone());
        run_blocking(move || layout.has(&digest).then(|| layout.artifact_size(&digest)).transpose())
            .await
    }

    /// Reads an index of a plugin. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// A file operation failed, or the content is corrupt or not an index.
    pub async fn platform_index(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<Option<PlatformIndex>, ArtifactError> {
        let (layout, digest) = (self.layout(repository), digest.clone());
        run_blocking(move || {
            layout.has(&digest).then(|| layout.platform_index(&digest)).transpose()
        })
        .await
    }

    /// Reads a blob of at most `limit` bytes after verifying its digest. Returns `None` if it does
    /// not exist or is larger.
    ///
    /// # Errors
    /// A file operation failed, or the content is corrupt.
    pub async fn small_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        limit: u64,
    ) -> Result<Option<Vec<u8>>, ArtifactError> {
        if self.size(repository, digest).await.is_none_or(|size| size > limit) {
            return Ok(None);
        }
        let (layout, digest) = (self.layout(repository), digest.clone());
        let mut file = run_blocking(move || layout.verified(&digest)).await?;
        let mut bytes = Vec::new();
        let read = std::io::Read::read_to_end(&mut file, &mut bytes);
        read.map_err(at(Path::new("registry")))?;
        Ok(Some(bytes))
    }

    /// Stores a blob if it matches its digest. Idempotent.
    ///
    /// # Errors
    /// The body ends early, exceeds the size limit or has another digest, or a file operation
    /// failed.
    pub async fn store(
        &self,
        repository: &Repository,
        digest: &Digest,
        body: Body,
    ) -> Result<(), ArtifactError> {
        let (layout, limit) = (self.layout(repository), self.max_blob_bytes);
        let mut writer = run_blocking(move || layout.writer(limit)).await?;
        let mut chunks = body.into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|why| ArtifactError::BodyEnded(why.to_string()))?;
            // Each chunk is written in a blocking task of its own. Otherwise, a slow client would
            // occupy a thread.
            writer = run_blocking(move || writer.append(&chunk).map(|()| writer)).await?;
        }
        let digest = digest.clone();
        run_blocking(move || writer.finish(Some(&digest)).map(drop)).await
    }

    /// Lists an artifact in the repository's index, so that OCI tools find it. All of its blobs
    /// must be stored.
    ///
    /// # Errors
    /// A file operation failed, or the index is invalid.
    pub async fn add_to_index(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<(), ArtifactError> {
        let (layout, digest) = (self.layout(repository), digest.clone());
        let repository = repository.to_string();
        // The lock of the layout excludes other servers, but it polls with a time limit. The lock
        // `index` queues the requests of this server. The task owns the guard, so that no other
        // write starts before this one ends, even if the caller disconnects.
        let alone = Arc::clone(&self.index).lock_owned().await;
        run_blocking(move || {
            let listed = layout.add_to_index(&repository, &digest);
            drop(alone);
            listed
        })
        .await
    }
}

/// Runs file operations on a blocking thread, because an fsync would delay other requests.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LayoutError> + Send + 'static,
) -> Result<T, ArtifactError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|why| at(Path::new("registry"))(io::Error::other(why)))??)
}

pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> ArtifactError {
    let path = path.display().to_string();
    move |reason| ArtifactError::Io { path, reason }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_start_deletes_only_uploads_that_no_server_writes() {
        let data = tempfile::tempdir().unwrap();
        let open = || Registry::open(data.path(), 1, None).unwrap();
        let uploads = open().uploads();
        let (active, abandoned) = (uploads.join(".tmpA"), uploads.join(".tmpB"));
        fs::write(&active, "").unwrap();
        let file = fs::File::create(&abandoned).unwrap();
        file.set_modified(SystemTime::now() - 2 * ABANDONED_AFTER).unwrap();
        drop(open());
        assert!(active.exists() && !abandoned.exists());
    }
}
