//! Blobs whose bytes in the registry have another digest.
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use domain::digest::Digest;

/// Number of reads with other bytes after which requests are refused. One can be a broken transfer.
const CONFIRMED: u32 = 2;
/// Time after which a blob with other bytes is read again. Its registry may have been repaired.
const DAMAGED_FOR: Duration = Duration::from_secs(60);
/// Maximum number of remembered blobs.
const MAX_DAMAGED: usize = 1_024;

/// A blob in a repository. Another repository can have a good copy.
pub(super) type StoredBlob = (String, Digest);

/// Blobs with other bytes: the number of such reads, and the time of the last one. A stream detects
/// them only at its end, when it cannot send an error any more, so a later request reports it.
#[derive(Default)]
pub(super) struct Damage(Mutex<HashMap<StoredBlob, (u32, Instant)>>);

impl Damage {
    /// Returns true if the blob had other bytes in several reads.
    pub(super) fn is_confirmed(&self, blob: &StoredBlob) -> bool {
        self.lock()
            .get(blob)
            .is_some_and(|(reads, last)| *reads >= CONFIRMED && last.elapsed() < DAMAGED_FOR)
    }

    /// Records a read with other bytes.
    pub(super) fn record(&self, blob: &StoredBlob) {
        let mut known = self.lock();
        if known.len() >= MAX_DAMAGED {
            known.clear();
        }
        let now = Instant::now();
        let (reads, last) = known.entry(blob.clone()).or_insert((0, now));
        (*reads, *last) = (*reads + 1, now);
    }

    /// Records a read with the right bytes.
    pub(super) fn clear(&self, blob: &StoredBlob) {
        self.lock().remove(blob);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<StoredBlob, (u32, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(repository: &str, bytes: &[u8]) -> StoredBlob {
        (repository.to_owned(), oci_layout::sha256(bytes))
    }

    #[test]
    fn one_broken_transfer_refuses_no_request() {
        let (damage, blob) = (Damage::default(), copy("a", b"blob"));
        damage.record(&blob);
        assert!(!damage.is_confirmed(&blob));
        damage.clear(&blob);
        damage.record(&blob);
        assert!(!damage.is_confirmed(&blob));
        damage.record(&blob);
        assert!(damage.is_confirmed(&blob));
        assert!(!damage.is_confirmed(&copy("a", b"other")));
        assert!(!damage.is_confirmed(&copy("b", b"blob")));
    }
}
