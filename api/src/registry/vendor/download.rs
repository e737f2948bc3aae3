//! Downloads of blobs from the registry of the vendor to runners.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
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
    time::{Instant, timeout},
};
use tracing::warn;

use super::{Repository, SLOWEST, Times, VendorRegistry, acquired};

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
                let receiver = Receiver::new(runner, sender, &registry.times);
                registry.send(&name, &blob, from, receiver).await;
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
    async fn send(&self, name: &str, blob: &Blob, from: u64, mut receiver: Receiver) {
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
            if !receiver.take(chunk).await || is_last {
                return;
            }
        }
        if from == 0 {
            self.damage.clear(&stored);
        }
        if let Some(last) = withheld {
            receiver.take(Ok(last)).await;
        }
    }
}

/// Receiver of a download: the response to a runner.
struct Receiver {
    runner: RunnerId,
    chunks: mpsc::Sender<Chunk>,
    taken: u64,
    began: Instant,
    stalled: Duration,
    slow: Duration,
}

impl Receiver {
    fn new(runner: RunnerId, chunks: mpsc::Sender<Chunk>, times: &Times) -> Receiver {
        let (stalled, slow) = (times.stalled, times.slow);
        Receiver { runner, chunks, taken: 0, began: Instant::now(), stalled, slow }
    }

    /// Returns false if the receiver is gone, or does not take chunks fast enough.
    async fn take(&mut self, chunk: Chunk) -> bool {
        let bytes = chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        let sent = match timeout(self.stalled, self.chunks.send(chunk)).await {
            Ok(sent) => sent.is_ok(),
            Err(_) => return self.cut("it took no bytes for too long"),
        };
        self.taken += bytes;
        let elapsed = self.began.elapsed();
        if sent && elapsed > self.slow && self.taken < elapsed.as_secs() * SLOWEST {
            return self.cut("it takes bytes too slowly");
        }
        sent
    }

    fn cut(&self, why: &str) -> bool {
        let (runner, elapsed) = (self.runner, self.began.elapsed().as_secs());
        warn!(runner.id = %runner, taken = self.taken, elapsed_s = elapsed, "Stopped the download of a runner: {why}");
        false
    }
}

#[cfg(test)]
mod tests {
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

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_takes_bytes_too_slowly_is_cut() {
        let (sender, mut received) = mpsc::channel(1);
        let runner = RunnerId(Ulid::new());
        let mut receiver = Receiver::new(runner, sender, &Times::default());
        let task = tokio::spawn(async move {
            let chunk = || Ok(Bytes::from(vec![0; 64 << 10]));
            while receiver.take(chunk()).await {}
            receiver.taken
        });
        // Each wait is shorter than the one after which a receiver has stalled.
        while received.recv().await.is_some() {
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        assert!(task.await.unwrap() < 1 << 20);
    }
}
