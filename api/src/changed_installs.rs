use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use domain::ids::InstallId;

/// Maximum number of cached ranges.
const MAX_CACHED: usize = 8;

/// First and last position of a range.
pub(crate) type Range = (u64, u64);

/// Cache of the installs that changed in recently requested ranges. A range of the log never
/// changes, so later pages of a list need not read the events again.
#[derive(Debug, Default)]
pub struct ChangedInstallsCache(Mutex<VecDeque<(Range, Arc<BTreeSet<InstallId>>)>>);

impl ChangedInstallsCache {
    /// Returns the installs that changed in a range. `None` if the range is not cached.
    pub(crate) fn find(&self, range: Range) -> Option<Arc<BTreeSet<InstallId>>> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.iter().find(|(known, _)| *known == range).map(|(_, installs)| Arc::clone(installs))
    }

    /// Caches a range. Drops the oldest range if the cache is full.
    pub(crate) fn keep(&self, range: Range, installs: Arc<BTreeSet<InstallId>>) {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.retain(|(known, _)| *known != range);
        cached.truncate(MAX_CACHED - 1);
        cached.push_front((range, installs));
    }
}
