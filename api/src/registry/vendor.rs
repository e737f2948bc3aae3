//! Registry of the vendor: build runners push artifacts there, and the server reads them by digest.
mod damage;
mod download;
#[cfg(test)]
pub(crate) mod fake;
mod former;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::{digest::Digest, image::MAX_PLATFORMS};
use oci_layout::Document;
use oci_registry::{Endpoint, Received, Referred, RegistryError, VendorLocation};
use tokio::{sync::Semaphore, time::timeout};
use tracing::warn;

use self::{damage::Damage, download::Downloads};
use super::Repository;
use crate::{
    problem::{Code, Problem},
    reach::{GuardedResolver, Reachable},
};

pub(super) use self::former::record;

/// Maximum number of concurrent reads of documents. Downloads have permits of their own: slow
/// receivers must not delay the checks of builds.
const DOCUMENT_READS: usize = 64;
/// Longest time without progress. Runners repeat a failed request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time without data in one request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of bytes of cached documents. Documents never change.
const MAX_CACHED: usize = 64 << 20;

/// Registry of the vendor.
pub(super) struct VendorRegistry {
    location: VendorLocation,
    endpoint: Endpoint,
    document_reads: Semaphore,
    /// Documents by repository and digest. A digest that another repository has is not found.
    documents: Mutex<HashMap<(String, Digest), Arc<Received>>>,
    downloads: Downloads,
    damage: Damage,
    times: Times,
}

/// Longest times of one request of a runner.
struct Times {
    /// Until the first bytes of a download. Shorter than the 60 s after which a runner repeats it.
    response: Duration,
    /// Until all documents of an artifact are read. Shorter than the 15 s after which a runner repeats
    /// a report, so that it receives the cause.
    check: Duration,
    /// Until the receiver of a download takes the next bytes. A longer one would keep the connection
    /// to the registry and the permit.
    stalled: Duration,
    /// Until the receiver of a download must have taken its bytes at [`SLOWEST`] on average.
    slow: Duration,
}

/// Minimum average rate of a download, in bytes per second. A slower receiver would keep the permit of
/// a large blob for days.
const SLOWEST: u64 = 16 * 1024;

impl Default for Times {
    fn default() -> Times {
        Times {
            response: Duration::from_secs(45),
            check: Duration::from_secs(10),
            stalled: Duration::from_secs(30),
            slow: Duration::from_secs(60),
        }
    }
}

impl VendorRegistry {
    pub(super) fn new(
        location: VendorLocation,
        reachable: Reachable,
    ) -> Result<VendorRegistry, RegistryError> {
        let endpoint = Endpoint::of_host(location.host())?.with_timeouts(PATIENCE, IDLE_TIMEOUT);
        Ok(VendorRegistry {
            endpoint: match reachable {
                Reachable::Public => endpoint.with_referred(public_only(&location)?),
                Reachable::All => endpoint,
            },
            location,
            document_reads: Semaphore::new(DOCUMENT_READS),
            documents: Mutex::default(),
            downloads: Downloads::default(),
            damage: Damage::default(),
            times: Times::default(),
        })
    }

    /// Returns true if builds can push to this repository.
    pub(super) fn can_have(&self, repository: &Repository) -> bool {
        self.location.name(&repository.to_string()).is_ok()
    }

    /// Reads a manifest or an index, and verifies its digest.
    pub(super) async fn document(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<Arc<Received>, RegistryError> {
        let key = (self.name(repository)?, digest.clone());
        if let Some(known) = self.documents().get(&key) {
            return Ok(Arc::clone(known));
        }
        let reading = async {
            let _permit = acquired(self.document_reads.acquire().await)?;
            self.endpoint.document(&key.0, &digest.to_string()).await
        };
        let received = Arc::new(self.in_time(self.times.response, reading).await?);
        let mut documents = self.documents();
        let cached: usize = documents.values().map(|document| document.bytes.len()).sum();
        if cached + received.bytes.len() > MAX_CACHED {
            documents.clear();
        }
        documents.insert(key, Arc::clone(&received));
        Ok(received)
    }

    /// Total bytes of an artifact as its documents state them.
    pub(super) async fn artifact_size(
        &self,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<u64, RegistryError> {
        self.in_time(self.times.check, async {
            let top = self.document(repository, digest).await?;
            let mut size = top.bytes.len() as u64;
            for blob in top.document.blobs() {
                size = size.saturating_add(blob.size);
            }
            let Document::List(list) = &top.document else { return Ok(size) };
            if list.images().len() > MAX_PLATFORMS {
                let why = format!("it has more than {MAX_PLATFORMS} images");
                return Err(self.invalid(digest.to_string(), why));
            }
            for image in list.images() {
                let manifest = self.document(repository, &image.blob.digest).await?;
                let blobs = manifest.document.blobs().map(|blob| blob.size);
                size = blobs.fold(size, u64::saturating_add);
            }
            Ok(size)
        })
        .await
    }

    fn name(&self, repository: &Repository) -> Result<String, RegistryError> {
        let name = self.location.name(&repository.to_string());
        name.map_err(|why| self.invalid(repository.to_string(), why))
    }

    fn invalid(&self, what: String, why: String) -> RegistryError {
        RegistryError::Invalid { host: self.location.host().to_owned(), what, why }
    }

    async fn in_time<T>(
        &self,
        limit: Duration,
        reading: impl Future<Output = Result<T, RegistryError>>,
    ) -> Result<T, RegistryError> {
        timeout(limit, reading).await.unwrap_or_else(|_| {
            let why = format!("it did not respond within {} s", limit.as_secs());
            Err(RegistryError::Unreachable { host: self.location.host().to_owned(), why })
        })
    }

    fn documents(&self) -> std::sync::MutexGuard<'_, HashMap<(String, Digest), Arc<Received>>> {
        self.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns access to the public addresses that the registry refers to. Who operates the registry must
/// not read internal services through the server.
fn public_only(location: &VendorLocation) -> Result<Referred, RegistryError> {
    let http = oci_registry::client()
        // A proxy of the environment would resolve the name itself.
        .no_proxy()
        .dns_resolver(Arc::new(GuardedResolver(Reachable::Public)))
        .build();
    let host = location.host().to_owned();
    let http = http.map_err(|error| RegistryError::Unreachable { host, why: error.to_string() })?;
    Ok(Referred {
        http,
        permits: |url| Reachable::Public.check(url).is_ok(),
        remedy: "start the server with --registry-to-private-networks to permit all addresses",
    })
}

/// Returns an acquired permit. No semaphore is ever closed.
fn acquired<P>(permit: Result<P, tokio::sync::AcquireError>) -> Result<P, RegistryError> {
    permit.map_err(|error| RegistryError::Task(error.to_string()))
}

/// Returns the problem for a runner. Only the log names the registry, because runners belong to
/// customers.
pub(super) fn problem(error: &RegistryError) -> Problem {
    warn!(error = %error, "Cannot read an artifact from the registry of the vendor");
    let (code, why) = match error {
        RegistryError::Status { status: 400..=407 | 409..=424 | 426..=428 | 430..=499, .. }
        | RegistryError::Invalid { .. }
        | RegistryError::NoPlatform { .. } => (
            Code::Invalid,
            "the vendor's registry sent an unusable response; start the run or the build again after the vendor has corrected it",
        ),
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
        RegistryError::WrongDigest { .. } => (
            Code::DigestMismatch,
            "the vendor's registry has other bytes for its digest; the vendor must restore it, or build the component again",
        ),
    };
    Problem::new(code, format!("cannot read the artifact: {why}"))
}
