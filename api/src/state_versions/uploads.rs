//! Limits on concurrent transfers of states, by the memory that they take.
//!
//! ```text
//! upload    announced length × 3: the body, the argument of the statement, and the message to Postgres
//! download  3 parts, because a state is read and sent in parts
//! ```
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::ids::InstallId;
use schemas::runner::STATE_CIPHERTEXT_BYTES;
use tokio::time::Instant;

/// Size of a part of a downloaded state in bytes.
pub(super) const PART: u64 = 1 << 20;
/// Number of copies of a transferred state, or of its parts, that are in memory at the same time.
const COPIES: u64 = 3;
/// Maximum number of bytes in memory for all transfers.
const MOST_BYTES: u64 = 1 << 30;
/// Transfer that uses more memory than this is large.
const LARGE: u64 = COPIES * (4 << 20);
/// Part of [`MOST_BYTES`] that large transfers leave to the others, so that they cannot hold up the
/// usual small states.
const RESERVED_FOR_SMALL: u64 = 256 << 20;
/// Maximum number of bytes in memory for the transfers of one install: its largest state, and some
/// small ones.
const MOST_BYTES_OF_INSTALL: u64 = COPIES * STATE_CIPHERTEXT_BYTES + (32 << 20);
/// Maximum number of concurrent transfers of one install.
const MOST_OF_INSTALL: usize = 16;

/// Time for a transfer of a few bytes.
const LATENCY: Duration = Duration::from_secs(30);
/// Lowest rate of a transfer, in bytes per second.
const LOWEST_RATE: u64 = 128 << 10;
/// Time for the statement after an upload, until the transfer no longer counts.
const STATEMENT: Duration = Duration::from_secs(60);

/// Transfers in progress. Cheap to clone.
#[derive(Clone, Default)]
pub struct Uploads(Arc<Mutex<Counters>>);

#[derive(Default)]
struct Counters {
    next: u64,
    open: HashMap<u64, Open>,
}

struct Open {
    install: InstallId,
    memory: u64,
    deadline: Instant,
}

/// Transfer that counts until it is dropped, or until its time is over.
pub(crate) struct Transfer {
    all: Uploads,
    number: u64,
    deadline: Instant,
}

impl Uploads {
    /// Counts an upload of an install. Returns `None` if a limit is reached.
    pub(crate) fn upload(&self, install: InstallId, bytes: u64) -> Option<Transfer> {
        self.begin(install, bytes, bytes.saturating_mul(COPIES))
    }

    /// Counts a download of an install. Returns `None` if a limit is reached.
    pub(crate) fn download(&self, install: InstallId, bytes: u64) -> Option<Transfer> {
        self.begin(install, bytes, COPIES * bytes.min(PART))
    }

    fn begin(&self, install: InstallId, bytes: u64, memory: u64) -> Option<Transfer> {
        let now = Instant::now();
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A reader that stands still is never polled, so its transfer does not end by itself.
        counters.open.retain(|_, open| open.deadline + STATEMENT > now);
        let sum = |filter: &dyn Fn(&&Open) -> bool| -> u64 {
            counters.open.values().filter(filter).map(|open| open.memory).sum()
        };
        let of_install = |open: &&Open| open.install == install;
        let fits_all = sum(&|_| true) + memory <= MOST_BYTES;
        let is_large = memory > LARGE;
        let of_large = sum(&|open| open.memory > LARGE) + memory;
        let fits_large = !is_large || of_large <= MOST_BYTES - RESERVED_FOR_SMALL;
        let fits_own = sum(&of_install) + memory <= MOST_BYTES_OF_INSTALL;
        let is_few = counters.open.values().filter(of_install).count() < MOST_OF_INSTALL;
        if !(fits_all && fits_large && fits_own && is_few) {
            return None;
        }
        let deadline = now + LATENCY + Duration::from_secs(bytes / LOWEST_RATE);
        counters.next += 1;
        let number = counters.next;
        counters.open.insert(number, Open { install, memory, deadline });
        Some(Transfer { all: self.clone(), number, deadline })
    }
}

impl Transfer {
    /// Time at which the transfer is too slow.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut counters = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        counters.open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    fn install() -> InstallId {
        InstallId(Ulid::new())
    }

    #[test]
    fn the_transfers_of_one_install_are_limited() {
        let (uploads, one, other) = (Uploads::default(), install(), install());
        let mut own: Vec<_> = (0..16).map(|_| uploads.upload(one, 1).unwrap()).collect();
        assert!(uploads.upload(one, 1).is_none());
        assert!(uploads.upload(other, 1).is_some());
        own.pop();
        assert!(uploads.upload(one, 1).is_some());
        drop(own);
        // One state of the maximum size and small ones, but not two.
        let _largest = uploads.upload(one, STATE_CIPHERTEXT_BYTES).unwrap();
        assert!(uploads.upload(one, STATE_CIPHERTEXT_BYTES / 2).is_none());
        assert!(uploads.upload(one, 1 << 20).is_some());
    }

    #[test]
    fn large_uploads_hold_up_neither_small_states_nor_downloads() {
        let uploads = Uploads::default();
        let large = || uploads.upload(install(), STATE_CIPHERTEXT_BYTES);
        let open: Vec<_> = std::iter::from_fn(large).collect();
        assert_eq!(open.len(), 2);
        let _small: Vec<_> = (0..20).map(|_| uploads.upload(install(), 4 << 20).unwrap()).collect();
        let downloads = || uploads.download(install(), STATE_CIPHERTEXT_BYTES);
        let downloads: Vec<_> = std::iter::from_fn(downloads).collect();
        assert!(downloads.len() > 20, "{}", downloads.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_transfer_that_stands_still_does_not_count_for_ever() {
        let (uploads, one) = (Uploads::default(), install());
        let stuck: Vec<_> = (0..16).map(|_| uploads.download(one, 1).unwrap()).collect();
        assert!(uploads.download(one, 1).is_none());
        assert_eq!(stuck[0].deadline() - Instant::now(), LATENCY);
        tokio::time::advance(LATENCY + STATEMENT).await;
        let again = uploads.download(one, 1).unwrap();
        drop(stuck);
        assert_eq!(uploads.0.lock().unwrap().open.len(), 1);
        drop(again);
        assert!(uploads.0.lock().unwrap().open.is_empty());
    }
}
