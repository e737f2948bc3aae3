//! Copy of an image to a registry or to the layout of the runner.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use domain::digest::Digest;
use oci_layout::{Blob, Layout};
use reqwest::{Method, header};
use tokio::task::JoinSet;

use super::{
    Endpoint, RegistryError, Tree,
    auth::Scope,
    reader::Reader,
    tree::TreeDocument,
    upload::{Uploaded, upload},
};

/// Number of blobs that are copied concurrently.
const PARALLEL: usize = 4;
/// Number of retries of a blob with a wrong digest: a proxy may have sent its own page.
const WRONG_RETRIES: u32 = 2;

/// Origin of a copy.
#[derive(Clone)]
pub enum Source {
    /// Repository of a registry.
    Registry { endpoint: Arc<Endpoint>, name: String },
    /// Layout with all blobs.
    Layout(Layout),
}

/// Destination of a copy.
#[derive(Clone)]
pub enum Target {
    /// Repository of a registry.
    Registry {
        endpoint: Arc<Endpoint>,
        name: String,
        /// Tag for the image. Many registries delete images without one.
        tag: Option<String>,
        /// Repositories of the registry with their blobs, to mount from.
        known: Arc<Vec<(String, Vec<Digest>)>>,
    },
    /// Layout of the runner.
    Layout {
        layout: Layout,
        repository: String,
        /// Time of the copy. Blobs that the layout has count as used then.
        now: SystemTime,
    },
}

/// Counters of a copy.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    done: AtomicU64,
    sent_blobs: AtomicU64,
    sent: AtomicU64,
    mounted: AtomicU64,
}

impl Progress {
    pub(crate) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts bytes that are sent again.
    pub(crate) fn rewind(&self, bytes: u64) {
        self.done.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn skip(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the copied and the total bytes, for users.
    pub fn text(&self) -> String {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        format!("{} of {}", size(done), size(total))
    }

    /// Returns what the copy transferred, for users.
    pub fn summary(&self) -> String {
        let (blobs, bytes) =
            (self.sent_blobs.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed));
        match self.mounted.load(Ordering::Relaxed) {
            0 => format!("copied {blobs} blobs, {bytes} bytes"),
            mounted => format!("copied {blobs} blobs, {bytes} bytes; mounted {mounted} blobs"),
        }
    }
}

/// Returns a number of bytes for users.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{} MiB", bytes >> 20),
    }
}

impl Target {
    /// Returns whether the target has the image, under its tag if it has one.
    ///
    /// # Errors
    /// The registry is unreachable or refuses the request.
    pub async fn has(&self, digest: &Digest) -> Result<bool, RegistryError> {
        match self {
            Target::Registry { endpoint, name, tag, .. } => {
                let by_digest = digest.to_string();
                let reference = tag.as_deref().unwrap_or(&by_digest);
                Ok(endpoint.find(name, reference).await?.as_ref() == Some(digest))
            }
            Target::Layout { layout, .. } => Ok(layout.complete(digest)),
        }
    }

    /// Gives the image a tag in a registry. A layout has no tags.
    ///
    /// # Errors
    /// The registry is unreachable or refuses the request, for example a change of an immutable tag.
    pub async fn tag(&self, tag: &str, tree: &Tree) -> Result<(), RegistryError> {
        let (Target::Registry { endpoint, name, .. }, Some(image)) = (self, tree.documents.last())
        else {
            return Ok(());
        };
        if endpoint.find(name, tag).await?.as_ref() == Some(&image.digest) {
            return Ok(());
        }
        put(endpoint, name, tag, image).await
    }

    async fn receive(
        &self,
        source: &Source,
        blob: &Blob,
        progress: &Progress,
    ) -> Result<(), RegistryError> {
        let mut reader = Reader::open(source, blob).await?;
        match self {
            Target::Registry { endpoint, name, known, .. } => {
                let has = |(other, blobs): &&(String, Vec<Digest>)| {
                    other != name && blobs.contains(&blob.digest)
                };
                let from: Vec<_> = known.iter().filter(has).map(|(name, _)| name.clone()).collect();
                match upload(endpoint, name, &from, blob, &mut reader, progress).await? {
                    Uploaded::Present => progress.skip(blob.size),
                    Uploaded::Mounted => {
                        progress.skip(blob.size);
                        progress.mounted.fetch_add(1, Ordering::Relaxed);
                    }
                    Uploaded::Sent => {
                        progress.sent_blobs.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            Target::Layout { layout, now, .. } if layout.has(&blob.digest) => {
                // A cleanup deletes old blobs that no artifact of the index names.
                layout.touch(&blob.digest, *now);
                progress.skip(blob.size);
            }
            Target::Layout { layout, .. } => {
                let mut writer = layout.writer(blob.size)?;
                while let Some(chunk) = reader.next().await? {
                    writer.append(&chunk)?;
                    progress.add(chunk.len() as u64);
                }
                writer.finish(Some(&blob.digest))?;
                progress.sent_blobs.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Stores the documents after their blobs, and names the image.
    async fn complete(&self, tree: &Tree) -> Result<(), RegistryError> {
        match self {
            Target::Registry { endpoint, name, tag, .. } => {
                for document in &tree.documents {
                    let reference = document.digest.to_string();
                    if endpoint.find(name, &reference).await?.is_none() {
                        put(endpoint, name, &reference, document).await?;
                    }
                }
                if let Some(tag) = tag {
                    self.tag(tag, tree).await?;
                }
            }
            Target::Layout { layout, repository, .. } => {
                for document in &tree.documents {
                    layout.put(&document.bytes)?;
                }
                layout.add_to_index(repository, &tree.digest)?;
            }
        }
        Ok(())
    }
}

/// Copies an image. Blobs that the target has are not sent.
///
/// # Errors
/// A registry is unreachable or refuses a request, a blob has another digest, or a file operation
/// failed.
pub async fn copy(
    source: &Source,
    target: &Target,
    tree: &Tree,
    progress: &Arc<Progress>,
) -> Result<(), RegistryError> {
    let total = tree.blobs.iter().map(|blob| blob.size).fold(0, u64::saturating_add);
    progress.total.store(total, Ordering::Relaxed);
    let mut waiting = tree.blobs.iter().cloned();
    // A drop of the set stops the other copies.
    let mut running = JoinSet::new();
    loop {
        while running.len() < PARALLEL
            && let Some(blob) = waiting.next()
        {
            let (source, target, progress) = (source.clone(), target.clone(), Arc::clone(progress));
            running.spawn(async move { copy_blob(&source, &target, &blob, &progress).await });
        }
        match running.join_next().await {
            Some(Ok(copied)) => copied?,
            Some(Err(error)) => return Err(RegistryError::Task(error.to_string())),
            None => break,
        }
    }
    target.complete(tree).await
}

async fn copy_blob(
    source: &Source,
    target: &Target,
    blob: &Blob,
    progress: &Progress,
) -> Result<(), RegistryError> {
    let mut wrong = 0;
    loop {
        match target.receive(source, blob, progress).await {
            Err(RegistryError::WrongDigest { .. }) if wrong < WRONG_RETRIES => {
                wrong += 1;
                progress.rewind(blob.size);
            }
            result => return result,
        }
    }
}

async fn put(
    endpoint: &Endpoint,
    name: &str,
    reference: &str,
    document: &TreeDocument,
) -> Result<(), RegistryError> {
    let what = format!("{name} {reference}");
    let url = endpoint.url(&format!("{name}/manifests/{reference}"))?;
    let put = |http: &reqwest::Client| {
        http.request(Method::PUT, url.clone())
            .header(header::CONTENT_TYPE, &document.media_type)
            .body(document.bytes.clone())
    };
    let response = endpoint.send(&what, &Scope::push(name), put).await?;
    match response.status().is_success() {
        true => Ok(()),
        false => Err(endpoint.refusal(&what, response).await),
    }
}
