//! Limits on concurrent transfers of states, by the memory that they take.
//!
//! ```text
//! upload     bytes that arrived; an announced length takes nothing
//! statement  2 copies: the argument of the statement, and the message to Postgres
//! download   3 parts, because a state is read and sent in parts
//! ```
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::ids::InstallId;
use schemas::runner::STATE_CIPHERTEXT_BYTES;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

/// Size of a part of a downloaded state in bytes.
pub(super) const PART: u64 = 1 << 20;
/// Number of parts of a download that are in memory at the same time.
const PARTS: u64 = 3;
/// Maximum number of bytes of one install that arrived and are not stored: its largest state, and
/// some small ones.
const UPLOADS_OF_INSTALL: u64 = STATE_CIPHERTEXT_BYTES + (28 << 20);
/// Maximum number of bytes of all installs that arrived and are not stored. At their limit, eight
/// installs hold up the others.
const UPLOADS: u64 = 8 * UPLOADS_OF_INSTALL;
/// Upload of more bytes than this is large.
const LARGE: u64 = 4 << 20;
/// Part of [`UPLOADS`] that large uploads leave to the others, so that they cannot hold up the usual
/// small states.
const RESERVED_FOR_SMALL: u64 = 256 << 20;
/// Maximum number of bytes in memory for all downloads.
const DOWNLOADS: u64 = 256 << 20;
/// Maximum number of concurrent transfers of one install, for each direction.
const MOST_OF_INSTALL: usize = 16;
/// Memory for statements, in units of [`UNIT`] bytes.
const STATEMENTS: u32 = (256 << 20) / UNIT;
const UNIT: u32 = 1 << 10;
/// Number of copies of a state during its statement, beside the body.
const COPIES: usize = 2;
/// Maximum time to wait for a statement.
const STATEMENT_WAIT: Duration = Duration::from_secs(30);

/// Time for a transfer of a few bytes.
const LATENCY: Duration = Duration::from_secs(30);
/// Lowest rate of a transfer, in bytes per second.
pub(crate) const LOWEST_RATE: u64 = 128 << 10;
/// Time after the deadline of a download until it no longer counts.
const STANDSTILL: Duration = Duration::from_secs(60);
/// Period of the limit on uploaded bytes.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Number of times that an install may upload its quota in a [`DAY`].
const QUOTAS_PER_DAY: u64 = 10;

/// Transfers in progress. Cheap to clone.
#[derive(Clone)]
pub struct Uploads(Arc<Shared>);

struct Shared {
    counters: Mutex<Counters>,
    statements: Arc<Semaphore>,
}

#[derive(Default)]
struct Counters {
    next: u64,
    open: HashMap<u64, Open>,
    /// Bytes that each install uploaded since the beginning of its period.
    uploaded: HashMap<InstallId, (Instant, u64)>,
}

struct Open {
    install: InstallId,
    memory: u64,
    /// Deadline of a download. `None` for an upload, whose time its reader limits.
    deadline: Option<Instant>,
}

/// Transfer that counts until it is dropped. A download counts only until its time is over.
pub(crate) struct Transfer {
    all: Uploads,
    number: u64,
    install: InstallId,
    deadline: Instant,
}

impl Default for Uploads {
    fn default() -> Self {
        let statements = Arc::new(Semaphore::new(STATEMENTS as usize));
        Uploads(Arc::new(Shared { counters: Mutex::default(), statements }))
    }
}

impl Uploads {
    /// Counts an upload of an install, without bytes. Returns `None` if a limit is reached.
    pub(crate) fn upload(&self, install: InstallId) -> Option<Transfer> {
        self.begin(install, 0, None)
    }

    /// Counts a download of an install. Returns `None` if a limit is reached.
    pub(crate) fn download(&self, install: InstallId, bytes: u64) -> Option<Transfer> {
        let time = LATENCY + Duration::from_secs(bytes / LOWEST_RATE);
        self.begin(install, PARTS * bytes.min(PART), Some(Instant::now() + time))
    }

    fn begin(
        &self,
        install: InstallId,
        memory: u64,
        deadline: Option<Instant>,
    ) -> Option<Transfer> {
        let now = Instant::now();
        let mut counters = self.counters();
        // A reader that stands still is never polled, so its transfer does not end by itself.
        let is_open =
            |open: &Open| open.deadline.is_none_or(|deadline| deadline + STANDSTILL > now);
        counters.open.retain(|_, open| is_open(open));
        let is_alike = |open: &&Open| open.deadline.is_some() == deadline.is_some();
        let alike = || counters.open.values().filter(is_alike);
        let of_install = alike().filter(|open| open.install == install).count();
        let downloads: u64 = alike().map(|open| open.memory).sum();
        let fits = deadline.is_none() || downloads + memory <= DOWNLOADS;
        if of_install >= MOST_OF_INSTALL || !fits {
            return None;
        }
        counters.next += 1;
        let number = counters.next;
        counters.open.insert(number, Open { install, memory, deadline });
        drop(counters);
        let deadline = deadline.unwrap_or(now);
        Some(Transfer { all: self.clone(), number, install, deadline })
    }

    /// Counts stored bytes towards the limit per day of an install.
    pub(crate) fn spend(&self, install: InstallId, bytes: u64) {
        let now = Instant::now();
        let mut counters = self.counters();
        counters.uploaded.retain(|_, (begun, _)| *begun + DAY > now);
        counters.uploaded.entry(install).or_insert((now, 0)).1 += bytes;
    }

    fn counters(&self) -> std::sync::MutexGuard<'_, Counters> {
        self.0.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transfer {
    /// Time at which a download is too slow.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Counts the memory of an upload, before it is allocated. Returns false if a limit is reached.
    pub(crate) fn grow(&self, memory: u64) -> bool {
        let mut counters = self.all.counters();
        let uploads = || {
            let others = counters.open.iter().filter(|(number, _)| **number != self.number);
            others.map(|(_, open)| open).filter(|open| open.deadline.is_none())
        };
        let all: u64 = uploads().map(|open| open.memory).sum();
        let large: u64 = uploads().map(|open| open.memory).filter(|memory| *memory > LARGE).sum();
        let own = uploads().filter(|open| open.install == self.install);
        let own: u64 = own.map(|open| open.memory).sum();
        let fits = all + memory <= UPLOADS
            && own + memory <= UPLOADS_OF_INSTALL
            && (memory <= LARGE || large + memory <= UPLOADS - RESERVED_FOR_SMALL);
        if fits && let Some(open) = counters.open.get_mut(&self.number) {
            open.memory = memory;
        }
        fits
    }

    /// Returns the seconds after which the install may upload again, if these bytes exceed its limit
    /// per day. The limit prevents an install from writing without end what its quota then deletes.
    pub(crate) fn check_day(&self, bytes: u64, quota: u64) -> Result<(), u64> {
        let now = Instant::now();
        let counters = self.all.counters();
        match counters.uploaded.get(&self.install) {
            Some((begun, uploaded))
                if *begun + DAY > now
                    && *uploaded + bytes > quota.saturating_mul(QUOTAS_PER_DAY) =>
            {
                Err((*begun + DAY - now).as_secs() + 1)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Waits until a statement may store a state of this size. At most a quarter of the database
    /// connections store states, so that other calls find one. Returns `None` after 30 s.
    pub(crate) async fn statement(
        &self,
        bytes: usize,
        connections: u32,
    ) -> Option<OwnedSemaphorePermit> {
        let most = (connections / 4).max(1);
        let memory = u32::try_from(bytes.saturating_mul(COPIES)).unwrap_or(u32::MAX) / UNIT;
        let permits = memory.max(STATEMENTS.div_ceil(most)).min(STATEMENTS);
        let statements = Arc::clone(&self.all.0.statements);
        timeout(STATEMENT_WAIT, statements.acquire_many_owned(permits)).await.ok()?.ok()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.all.counters().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    fn install() -> InstallId {
        InstallId(Ulid::new())
    }

    /// Uploads a state of this size until a limit is reached.
    fn upload(uploads: &Uploads, install: InstallId, bytes: u64) -> Option<Transfer> {
        uploads.upload(install).filter(|transfer| transfer.grow(bytes))
    }

    #[test]
    fn the_transfers_of_one_install_are_limited() {
        let (uploads, one, other) = (Uploads::default(), install(), install());
        let mut own: Vec<_> = (0..16).map(|_| uploads.upload(one).unwrap()).collect();
        assert!(uploads.upload(one).is_none());
        assert!(uploads.upload(other).is_some() && uploads.download(one, 1).is_some());
        own.pop();
        assert!(uploads.upload(one).is_some());
        drop(own);
        // One state of the maximum size and small ones, but not two.
        let _largest = upload(&uploads, one, STATE_CIPHERTEXT_BYTES).unwrap();
        assert!(upload(&uploads, one, STATE_CIPHERTEXT_BYTES / 2).is_none());
        assert!(upload(&uploads, one, 1 << 20).is_some());
    }

    #[test]
    fn a_few_installs_hold_up_no_other() {
        let uploads = Uploads::default();
        let mut open = vec![];
        // Four installs use all that they may, with large and with small states.
        for size in [STATE_CIPHERTEXT_BYTES, STATE_CIPHERTEXT_BYTES, LARGE, LARGE] {
            let one = install();
            open.extend(std::iter::from_fn(|| upload(&uploads, one, size)));
            open.extend(std::iter::from_fn(|| upload(&uploads, one, LARGE)));
            open.extend(std::iter::from_fn(|| uploads.download(one, STATE_CIPHERTEXT_BYTES)));
        }
        assert!(upload(&uploads, install(), STATE_CIPHERTEXT_BYTES).is_some());
        assert!(upload(&uploads, install(), LARGE).is_some());
        assert!(uploads.download(install(), STATE_CIPHERTEXT_BYTES).is_some());
    }

    #[test]
    fn all_uploads_are_limited_and_large_ones_leave_room_for_small_ones() {
        let uploads = Uploads::default();
        let of_size = |bytes| std::iter::from_fn(move || Some(bytes));
        let large = of_size(STATE_CIPHERTEXT_BYTES);
        let large: Vec<_> = large.map_while(|bytes| upload(&uploads, install(), bytes)).collect();
        assert_eq!(large.len(), 7);
        let small: Vec<_> =
            of_size(LARGE).map_while(|bytes| upload(&uploads, install(), bytes)).collect();
        assert!(small.len() > 60, "{}", small.len());
        assert!(upload(&uploads, install(), LARGE).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_download_that_stands_still_does_not_count_for_ever() {
        let (uploads, one) = (Uploads::default(), install());
        let stuck: Vec<_> = (0..16).map(|_| uploads.download(one, 1).unwrap()).collect();
        assert!(uploads.download(one, 1).is_none());
        assert_eq!(stuck[0].deadline() - Instant::now(), LATENCY);
        tokio::time::advance(LATENCY + STANDSTILL).await;
        let again = uploads.download(one, 1).unwrap();
        drop(stuck);
        assert_eq!(uploads.counters().open.len(), 1);
        drop(again);
        assert!(uploads.counters().open.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn statements_use_a_quarter_of_the_connections() {
        let uploads = Uploads::default();
        let transfer = uploads.upload(install()).unwrap();
        let mut open = vec![];
        for _ in 0..4 {
            open.push(transfer.statement(1, 16).await.unwrap());
        }
        assert!(transfer.statement(1, 16).await.is_none());
        open.clear();
        // The memory of the largest states is limited as well.
        let largest = usize::try_from(STATE_CIPHERTEXT_BYTES).unwrap();
        open.push(transfer.statement(largest, 100).await.unwrap());
        assert!(transfer.statement(largest, 100).await.is_none());
        assert!(transfer.statement(1, 100).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_bytes_of_an_install_per_day_are_limited() {
        let (uploads, one) = (Uploads::default(), install());
        let transfer = uploads.upload(one).unwrap();
        // Bytes that were not stored do not count.
        assert_eq!(transfer.check_day(900, 100), Ok(()));
        assert_eq!(transfer.check_day(900, 100), Ok(()));
        uploads.spend(one, 900);
        assert_eq!(transfer.check_day(101, 100), Err(DAY.as_secs() + 1));
        assert_eq!(uploads.upload(install()).unwrap().check_day(101, 100), Ok(()));
        assert_eq!(transfer.check_day(100, 100), Ok(()));
        tokio::time::advance(DAY).await;
        assert_eq!(transfer.check_day(101, 100), Ok(()));
    }
}
