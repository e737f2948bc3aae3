//! Downloads of blobs from the registry of the vendor to runners.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::body::Body;
use bytes::Bytes;
use domain::ids::RunnerId;
use futures::{StreamExt as _, stream};
use oci_layout::Blob;
use oci_registry::{BlobReader, RegistryError};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinSet,
    time::timeout,
};
use tracing::warn;

use super::{Repository, VendorRegistry, acquired};

/// Maximum number of concurrent downloads.
const DOWNLOADS: usize = 256;
/// Maximum number of concurrent downloads of one runner: its default of four jobs with four blobs each.
const DOWNLOADS_OF_RUNNER: usize = 16;
/// Number of chunks between the registry and the receiver.
const BUFFERED: usize = 4;

/// Permits of downloads. A runner of a customer that does not take its bytes must not delay the
/// others.
pub(super) struct Downloads {
    all: Arc<Semaphore>,
    of_runners: Mutex<HashMap<RunnerId, Arc<Semaphore>>>,
}

impl Default for Downloads {
    fn default() -> Downloads {
        Downloads { all: Arc::new(Semaphore::new(DOWNLOADS)), of_runners: Mutex::default() }
    }
}

/// Permits of one download: of its runner, and of all downloads.
type Permits = (OwnedSemaphorePermit, OwnedSemaphorePermit);

impl Downloads {
    async fn permits(&self, runner: RunnerId) -> Result<Permits, RegistryError> {
        let own = self.of_runner(runner);
        let own = acquired(own.acquire_owned().await)?;
        Ok((own, acquired(Arc::clone(&self.all).acquire_owned().await)?))
    }

    fn of_runner(&self, runner: RunnerId) -> Arc<Semaphore> {
        let mut of_runners = self.of_runners.lock().unwrap_or_else(PoisonError::into_inner);
        // A runner without a download needs no entry.
        of_runners.retain(|_, permits| Arc::strong_count(permits) > 1);
        let new = || Arc::new(Semaphore::new(DOWNLOADS_OF_RUNNER));
        Arc::clone(of_runners.entry(runner).or_insert_with(new))
    }
}

type Chunk = Result<Bytes, RegistryError>;

impl VendorRegistry {
    /// Reads a blob from an offset. Waits for the first bytes, so that an unavailable registry is a
    /// problem of the request. A read from the beginning ends without the last bytes if the blob has
    /// another digest. The receiver verifies a read from an offset.
    pub(in crate::registry) async fn blob(
        self: &Arc<Self>,
        repository: &Repository,
        blob: Blob,
        (runner, from): (RunnerId, u64),
    ) -> Result<Body, RegistryError> {
        let name = self.name(repository)?;
        if self.damage.is_confirmed(&(name.clone(), blob.digest.clone())) {
            let host = self.location.host().to_owned();
            return Err(RegistryError::WrongDigest { host, digest: blob.digest });
        }
        self.in_time(self.times.response, async {
            let permits = self.downloads.permits(runner).await?;
            let (sender, mut received) = mpsc::channel(BUFFERED);
            // The task ends with the response: the set stops it when it is dropped.
            let mut task = JoinSet::new();
            let registry = Arc::clone(self);
            task.spawn(async move {
                registry.send(&name, &blob, from, sender).await;
                drop(permits);
            });
            let first = received.recv().await.transpose()?;
            let rest = stream::unfold((received, task), |(mut received, task)| async move {
                Some((received.recv().await?, (received, task)))
            });
            Ok(Body::from_stream(stream::iter(first.map(Ok)).chain(rest)))
        })
        .await
    }

    /// Sends a blob to its receiver. The last chunk waits for the verification of the digest.
    async fn send(&self, name: &str, blob: &Blob, from: u64, receiver: mpsc::Sender<Chunk>) {
        let reader = || {
            let mut reader = BlobReader::new(&self.endpoint, name, blob);
            reader.seek(from);
            reader
        };
        let stored = (name.to_owned(), blob.digest.clone());
        let (mut reading, mut withheld, mut sent) = (reader(), None, false);
        loop {
            let chunk = match reading.next().await {
                Ok(Some(chunk)) => Ok(withheld.replace(chunk)),
                Ok(None) => break,
                Err(error @ RegistryError::WrongDigest { .. }) => {
                    let (digest, registry) = (&blob.digest, &self.location);
                    warn!(%digest, %registry, "Blob in the registry has another digest");
                    self.damage.record(&stored);
                    if !sent && !self.damage.is_confirmed(&stored) {
                        (reading, withheld) = (reader(), None);
                        continue;
                    }
                    Err(error)
                }
                Err(error) => {
                    if sent {
                        // The response has begun, so no problem of the request names the cause.
                        warn!(digest = %blob.digest, error = %error, "Download of a blob ended early");
                    }
                    Err(error)
                }
            };
            let is_last = chunk.is_err();
            let Some(chunk) = chunk.transpose() else { continue };
            sent = true;
            if !self.delivered(&receiver, chunk).await || is_last {
                return;
            }
        }
        if from == 0 {
            self.damage.clear(&stored);
        }
        if let Some(last) = withheld {
            self.delivered(&receiver, Ok(last)).await;
        }
    }

    /// Returns false if the receiver is gone, or does not take the chunk.
    async fn delivered(&self, receiver: &mpsc::Sender<Chunk>, chunk: Chunk) -> bool {
        matches!(timeout(self.times.stalled, receiver.send(chunk)).await, Ok(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ulid::Ulid;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_runner_cannot_use_the_downloads_of_the_others() {
        let (downloads, stalled) = (Downloads::default(), RunnerId(Ulid::new()));
        let mut held = vec![];
        for _ in 0..DOWNLOADS_OF_RUNNER {
            held.push(downloads.permits(stalled).await.unwrap());
        }
        let second = Duration::from_secs(1);
        assert!(timeout(second, downloads.permits(stalled)).await.is_err());
        let other = RunnerId(Ulid::new());
        drop(timeout(second, downloads.permits(other)).await.unwrap().unwrap());
        held.pop();
        held.push(timeout(second, downloads.permits(stalled)).await.unwrap().unwrap());
        drop(held);
        downloads.of_runner(other);
        assert_eq!(downloads.of_runners.lock().unwrap().len(), 1);
    }
}
