//! Registry on disk. A blob gets its final name by a rename, after it is verified and durable.
use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::body::Body;
use domain::digest::Digest;
use futures::StreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::{io::AsyncWriteExt as _, sync::Mutex};
use ulid::Ulid;

use super::{
    Descriptor, Image, Repository,
    image::{IMAGE_TYPE, Index},
};

/// Registry of the vendor's artifacts, used by one process at a time because the data directory is
/// locked.
pub struct Registry {
    directory: PathBuf,
    max_blob_bytes: u64,
    index: Arc<Mutex<()>>,
}

/// Reasons why an artifact cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// A file operation failed.
    #[error("cannot access {path}: {reason}")]
    Io { path: String, reason: io::Error },
    /// The blob exceeds the size limit.
    #[error("blob is too large: the limit is {limit} bytes; push a smaller blob")]
    TooLarge { limit: u64 },
    /// The content does not match its digest.
    #[error("digest mismatch: the bytes have {found}, expected {expected}; send the blob again")]
    Digest { expected: String, found: String },
    /// The request body could not be read to its end.
    #[error("cannot read the request body: {0}; send the blob again")]
    BodyEnded(String),
    /// The content is not an image manifest.
    #[error("invalid image manifest: {0}")]
    Manifest(String),
}

impl Registry {
    /// Opens the registry in the data directory and deletes incomplete uploads.
    ///
    /// # Errors
    /// A file operation failed.
    pub fn open(data: &Path, max_blob_bytes: u64) -> Result<Registry, ArtifactError> {
        let (directory, index) = (data.join("registry"), Arc::default());
        let registry = Registry { directory, max_blob_bytes, index };
        let uploads = registry.uploads();
        if uploads.exists() {
            fs::remove_dir_all(&uploads).map_err(at(&uploads))?;
        }
        fs::create_dir_all(&uploads).map_err(at(&uploads))?;
        // Only this server may read the vendor's modules. The mode is also set on a directory that
        // an earlier version created.
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&registry.directory, private).map_err(at(&registry.directory))?;
        Ok(registry)
    }

    fn uploads(&self) -> PathBuf {
        self.directory.join(".uploads")
    }

    fn blobs(&self, repository: &Repository) -> PathBuf {
        self.directory.join(repository.path()).join("blobs").join("sha256")
    }

    fn blob(&self, repository: &Repository, digest: &Digest) -> PathBuf {
        let digest = digest.to_string();
        self.blobs(repository).join(digest.trim_start_matches("sha256:"))
    }

    /// Size of a blob of the repository, or `None` if it does not exist.
    pub async fn size(&self, repository: &Repository, digest: &Digest) -> Option<u64> {
        let found = tokio::fs::metadata(self.blob(repository, digest)).await;
        found.ok().map(|found| found.len())
    }

    /// Opens a blob. Returns the file and its length, or `None` if it does not exist.
    ///
    /// # Errors
    /// A file operation failed for another reason.
    pub async fn read(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<Option<(tokio::fs::File, u64)>, ArtifactError> {
        let path = self.blob(repository, digest);
        let file = match tokio::fs::File::open(&path).await {
            Ok(file) => file,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(at(&path)(why)),
        };
        let length = file.metadata().await.map_err(at(&path))?.len();
        Ok(Some((file, length)))
    }

    /// Reads an image manifest of the repository. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// A file operation failed, or the content is not a manifest.
    pub async fn image(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<Option<Image>, ArtifactError> {
        let path = self.blob(repository, digest);
        match tokio::fs::read(&path).await {
            Ok(bytes) => image(&bytes).map(Some),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(at(&path)(why)),
        }
    }

    /// Stores a blob if it matches its digest. Idempotent.
    ///
    /// # Errors
    /// [`ArtifactError`]; nothing was stored.
    pub async fn keep(
        &self,
        repository: &Repository,
        digest: &Digest,
        body: Body,
    ) -> Result<(), ArtifactError> {
        let draft = self.uploads().join(Ulid::new().to_string());
        let received = self.receive(&draft, digest, body).await;
        let placed = match received {
            Ok(()) => self.place(&draft, repository, digest).await,
            Err(refused) => Err(refused),
        };
        if placed.is_err() {
            // The draft may already be deleted. If the deletion fails, the next start deletes the
            // draft.
            let _ = tokio::fs::remove_file(&draft).await;
        }
        placed
    }

    async fn receive(
        &self,
        draft: &Path,
        digest: &Digest,
        body: Body,
    ) -> Result<(), ArtifactError> {
        let mut file = tokio::fs::File::create_new(draft).await.map_err(at(draft))?;
        let (mut hasher, mut length) = (Sha256::new(), 0_u64);
        let mut chunks = body.into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|why| ArtifactError::BodyEnded(why.to_string()))?;
            length += chunk.len() as u64;
            if length > self.max_blob_bytes {
                return Err(ArtifactError::TooLarge { limit: self.max_blob_bytes });
            }
            hasher.update(&chunk);
            file.write_all(&chunk).await.map_err(at(draft))?;
        }
        let (expected, found) =
            (digest.to_string(), format!("sha256:{}", hex::encode(hasher.finalize())));
        if found != expected {
            return Err(ArtifactError::Digest { expected, found });
        }
        file.sync_all().await.map_err(at(draft))
    }

    async fn place(
        &self,
        draft: &Path,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<(), ArtifactError> {
        let (draft, blobs) = (draft.to_path_buf(), self.blobs(repository));
        let path = self.blob(repository, digest);
        run_blocking(move || {
            fs::create_dir_all(&blobs).map_err(at(&blobs))?;
            fs::rename(draft, &path).map_err(at(&path))?;
            sync(&blobs)
        })
        .await
    }

    /// Lists an artifact in the repository's index, so that OCI tools find it. All of its blobs must be stored.
    ///
    /// # Errors
    /// A file operation failed, or the index is invalid.
    pub async fn list(
        &self,
        repository: &Repository,
        digest: &Digest,
        image: &Image,
    ) -> Result<(), ArtifactError> {
        let directory = self.directory.join(repository.path());
        let size = self.size(repository, digest).await.unwrap_or(0);
        let (media_type, artifact_type) = (IMAGE_TYPE.to_string(), image.artifact_type.clone());
        let listed = Descriptor { media_type, digest: digest.clone(), size, artifact_type };
        // The guard moves into the task: if the caller disconnects, no other write may start before
        // this one ends.
        let alone = Arc::clone(&self.index).lock_owned().await;
        run_blocking(move || {
            let done = add_entry(&directory, listed);
            drop(alone);
            done
        })
        .await
    }
}

/// Adds a descriptor to the index of a layout.
fn add_entry(directory: &Path, listed: Descriptor) -> Result<(), ArtifactError> {
    let layout = directory.join("oci-layout");
    if !layout.exists() {
        replace(&layout, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    }
    let path = directory.join("index.json");
    let mut index = match fs::read(&path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map_err(|why| at(&path)(io::Error::other(why)))?
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => Index::default(),
        Err(why) => return Err(at(&path)(why)),
    };
    if index.manifests.iter().any(|known| known.digest == listed.digest) {
        return Ok(());
    }
    index.manifests.push(listed);
    let bytes = serde_json::to_vec(&index).map_err(|why| at(&path)(io::Error::other(why)))?;
    replace(&path, &bytes)
}

/// Runs file operations on a blocking thread, because an fsync would delay other requests.
async fn run_blocking(
    work: impl FnOnce() -> Result<(), ArtifactError> + Send + 'static,
) -> Result<(), ArtifactError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|why| {
        Err(ArtifactError::Io { path: "registry".into(), reason: io::Error::other(why) })
    })
}

/// Parses an image manifest with schema version 2.
pub(crate) fn image(bytes: &[u8]) -> Result<Image, ArtifactError> {
    let image: Image =
        serde_json::from_slice(bytes).map_err(|why| ArtifactError::Manifest(why.to_string()))?;
    if image.schema_version != 2
        || image.media_type.as_deref().is_some_and(|kind| kind != IMAGE_TYPE)
    {
        return Err(ArtifactError::Manifest(format!(
            "expected schema version 2 and media type {IMAGE_TYPE}"
        )));
    }
    Ok(image)
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), ArtifactError> {
    use std::io::Write as _;
    let draft = path.with_extension("new");
    let mut file = fs::File::create(&draft).map_err(at(&draft))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(at(&draft))?;
    fs::rename(&draft, path).map_err(at(path))?;
    path.parent().map_or(Ok(()), sync)
}

fn sync(directory: &Path) -> Result<(), ArtifactError> {
    fs::File::open(directory).and_then(|open| open.sync_all()).map_err(at(directory))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> ArtifactError {
    let path = path.display().to_string();
    move |reason| ArtifactError::Io { path, reason }
}
