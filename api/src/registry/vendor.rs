//! Registry of the vendor: build runners push artifacts there, and the server reads them by digest.
use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use domain::digest::Digest;
use futures::{Stream, StreamExt as _, stream};
use oci_layout::{Blob, Document};
use oci_registry::{BlobReader, Endpoint, Location, Received, RegistryError};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tracing::warn;

use super::Repository;
use crate::problem::{Code, Problem};

/// Maximum number of concurrent reads.
const READS: usize = 256;
/// Longest time without progress. Runners repeat a failed request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time without data in one request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest time until the first bytes. Shorter than the time after which a runner repeats a request.
const FIRST_BYTES: Duration = Duration::from_secs(45);
/// Maximum number of bytes of cached documents. Documents never change.
const MAX_CACHED: usize = 64 << 20;
/// Time after which a blob with other bytes is read again. Its registry may have been repaired.
const DAMAGED_FOR: Duration = Duration::from_secs(60);
/// Maximum number of remembered blobs with other bytes.
const MAX_DAMAGED: usize = 1_024;

/// Registry of the vendor.
pub(super) struct VendorRegistry {
    location: Location,
    endpoint: Endpoint,
    reads: Arc<Semaphore>,
    documents: Mutex<HashMap<Digest, Arc<Received>>>,
    /// Blobs whose bytes had another digest. A stream detects that only at its end, so the next
    /// request reports it.
    damaged: Mutex<HashMap<Digest, Instant>>,
}

impl VendorRegistry {
    pub(super) fn new(location: Location) -> Result<VendorRegistry, RegistryError> {
        let endpoint = Endpoint::of_host(&location.host)?.with_timeouts(PATIENCE, IDLE_TIMEOUT);
        let (documents, damaged) = (Mutex::default(), Mutex::default());
        let reads = Arc::new(Semaphore::new(READS));
        Ok(VendorRegistry { location, endpoint, reads, documents, damaged })
    }

    /// Reads a manifest or an index, and verifies its digest.
    pub(super) async fn document(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<Arc<Received>, RegistryError> {
        if let Some(known) = self.documents().get(digest) {
            return Ok(Arc::clone(known));
        }
        let name = self.name(repository)?;
        let reading = async {
            let _permit = self.permit().await?;
            self.endpoint.document(&name, &digest.to_string()).await
        };
        let received = Arc::new(self.in_time(reading).await?);
        let mut documents = self.documents();
        let cached: usize = documents.values().map(|document| document.bytes.len()).sum();
        if cached + received.bytes.len() > MAX_CACHED {
            documents.clear();
        }
        documents.insert(digest.clone(), Arc::clone(&received));
        Ok(received)
    }

    /// Total bytes of an artifact as its documents state them.
    pub(super) async fn artifact_size(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<u64, RegistryError> {
        let top = self.document(repository, digest).await?;
        let mut size = top.bytes.len() as u64;
        for blob in top.document.blobs() {
            size = size.saturating_add(blob.size);
        }
        if let Document::List(list) = &top.document {
            for image in list.images() {
                let manifest = self.document(repository, &image.blob.digest).await?;
                let blobs = manifest.document.blobs().map(|blob| blob.size);
                size = blobs.fold(size, u64::saturating_add);
            }
        }
        Ok(size)
    }

    /// Reads a blob from an offset. Waits for the first bytes, so that an unavailable registry is a
    /// problem of the request. A read from the beginning ends without the last bytes if the blob has
    /// another digest. The receiver verifies a read from an offset.
    pub(super) async fn blob(
        self: &Arc<Self>,
        repository: &Repository,
        blob: Blob,
        from: u64,
    ) -> Result<impl Stream<Item = Result<Bytes, RegistryError>> + Send + use<>, RegistryError>
    {
        let known = self.damaged().get(&blob.digest).copied();
        if known.is_some_and(|known| known.elapsed() < DAMAGED_FOR) {
            let host = self.location.host.clone();
            return Err(RegistryError::WrongDigest { host, digest: blob.digest });
        }
        let name = self.name(repository)?;
        let reading = async {
            let permit = self.permit().await?;
            let mut rest = Box::pin(Arc::clone(self).stream(name, blob, from, permit));
            let first = rest.next().await.transpose()?;
            Ok(stream::iter(first.map(Ok)).chain(rest))
        };
        self.in_time(reading).await
    }

    fn stream(
        self: Arc<Self>,
        name: String,
        blob: Blob,
        from: u64,
        permit: OwnedSemaphorePermit,
    ) -> impl Stream<Item = Result<Bytes, RegistryError>> + Send {
        let registry = self;
        async_stream::try_stream! {
            let _permit = permit;
            let mut reader = BlobReader::new(&registry.endpoint, &name, &blob);
            reader.seek(from);
            let mut last: Option<Bytes> = None;
            loop {
                let next = reader.next().await;
                if let Err(RegistryError::WrongDigest { digest, .. }) = &next {
                    warn!(%digest, registry = %registry.location, "Blob in the registry has another digest");
                    registry.record_damaged(digest);
                }
                let Some(chunk) = next? else { break };
                if let Some(earlier) = last.replace(chunk) {
                    yield earlier;
                }
            }
            if let Some(last) = last {
                yield last;
            }
        }
    }

    fn record_damaged(&self, digest: &Digest) {
        let mut damaged = self.damaged();
        if damaged.len() >= MAX_DAMAGED {
            damaged.clear();
        }
        damaged.insert(digest.clone(), Instant::now());
    }

    fn name(&self, repository: &Repository) -> Result<String, RegistryError> {
        self.location.name(&repository.to_string()).map_err(|why| RegistryError::Invalid {
            host: self.location.host.clone(),
            what: repository.to_string(),
            why,
        })
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, RegistryError> {
        let permit = Arc::clone(&self.reads).acquire_owned().await;
        permit.map_err(|error| RegistryError::Task(error.to_string()))
    }

    async fn in_time<T>(
        &self,
        reading: impl Future<Output = Result<T, RegistryError>>,
    ) -> Result<T, RegistryError> {
        timeout(FIRST_BYTES, reading).await.unwrap_or_else(|_| {
            let why = format!("it sent nothing within {} s", FIRST_BYTES.as_secs());
            Err(RegistryError::Unreachable { host: self.location.host.clone(), why })
        })
    }

    fn documents(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, Arc<Received>>> {
        self.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn damaged(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, Instant>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the problem for a runner. Only the log names the registry, because runners belong to
/// customers.
pub(super) fn problem(error: &RegistryError) -> Problem {
    warn!(error = %error, "Cannot read an artifact from the registry of the vendor");
    let (code, why) = match error {
        RegistryError::Unreachable { .. }
        | RegistryError::Status { .. }
        | RegistryError::Task(_)
        | RegistryError::Layout(_) => (
            Code::RegistryUnavailable,
            "the vendor's registry does not respond; retry after the vendor has restored it",
        ),
        RegistryError::Denied { .. } | RegistryError::Credentials { .. } => (
            Code::RegistryUnavailable,
            "the vendor's registry refused the credentials of the server; retry after the vendor has corrected them",
        ),
        RegistryError::Missing { .. } => (
            Code::NotFound,
            "the vendor's registry does not have it; the vendor must restore it, or build the component again",
        ),
        RegistryError::WrongDigest { .. }
        | RegistryError::Invalid { .. }
        | RegistryError::NoPlatform { .. } => (
            Code::DigestMismatch,
            "the vendor's registry has other bytes for its digest; the vendor must restore it, or build the component again",
        ),
    };
    Problem::new(code, format!("cannot read the artifact: {why}"))
}
