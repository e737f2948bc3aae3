//! Cache of aggregate states. An outdated state is harmless, because the append's expected version
//! detects it.
use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::StreamId;

/// Cache in two halves: one for states that were requested again after they were stored, the other
/// for the rest. Aggregates that are created and never read again therefore displace no state that
/// is in use.
pub(crate) struct Cache {
    /// Capacity of each of the four generations.
    capacity: usize,
    state: Mutex<CacheState>,
}

#[derive(Default)]
struct CacheState {
    requested: Generations,
    other: Generations,
    /// Number of times that the cache was cleared.
    era: u64,
}

/// Two generations. An entry that is not used during a whole generation is removed.
#[derive(Default)]
struct Generations {
    young: HashMap<StreamId, Entry>,
    old: HashMap<StreamId, Entry>,
}

#[derive(Clone)]
struct Entry {
    state: Arc<dyn Any + Send + Sync>,
    version: u64,
}

impl Cache {
    /// Creates a cache of about this many states.
    pub(crate) fn of(capacity: usize) -> Cache {
        Cache { capacity: capacity.div_ceil(4).max(1), state: Mutex::default() }
    }

    /// Returns a state with its version, and moves it to the half for requested states.
    pub(crate) fn get<S: Send + Sync + 'static>(&self, stream: &StreamId) -> Option<(Arc<S>, u64)> {
        let mut cached = self.lock();
        let entry = match cached.requested.young.get(stream) {
            Some(entry) => entry.clone(),
            None => {
                let (stream, entry) = cached.take(stream)?;
                cached.requested.keep(self.capacity, stream, entry.clone());
                entry
            }
        };
        Some((entry.state.downcast().ok()?, entry.version))
    }

    /// Number of times that the cache was cleared. A caller gets this number before it reads a
    /// state from the database, and passes it to [`Cache::put`] with the state.
    pub(crate) fn clear_count(&self) -> u64 {
        self.lock().era
    }

    /// Stores a state, unless a newer state is cached. Discards the state if the cache was cleared
    /// after the read began, because the state may contain erased data.
    pub(crate) fn put<S: Send + Sync + 'static>(
        &self,
        stream: StreamId,
        state: Arc<S>,
        (version, era): (u64, u64),
    ) {
        let mut cached = self.lock();
        if cached.era != era || cached.find(&stream).is_some_and(|newer| newer.version > version) {
            return;
        }
        let is_requested = cached.requested.find(&stream).is_some();
        // An entry must be in one generation only.
        cached.take(&stream);
        let generations = if is_requested { &mut cached.requested } else { &mut cached.other };
        generations.keep(self.capacity, stream, Entry { state, version });
    }

    /// Version of the cached state, or 0.
    pub(crate) fn version(&self, stream: &StreamId) -> u64 {
        self.lock().find(stream).map_or(0, |entry| entry.version)
    }

    /// Removes all states and increments the clear count.
    pub(crate) fn clear(&self) {
        let mut cached = self.lock();
        *cached = CacheState { era: cached.era + 1, ..CacheState::default() };
    }

    pub(crate) fn remove(&self, stream: &StreamId) {
        self.lock().take(stream);
    }

    /// Removes a state from before this version.
    pub(crate) fn remove_older(&self, stream: &StreamId, version: u64) {
        let mut cached = self.lock();
        if cached.find(stream).is_some_and(|entry| entry.version < version) {
            cached.take(stream);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn find(&self, stream: &StreamId) -> Option<&Entry> {
        self.requested.find(stream).or_else(|| self.other.find(stream))
    }

    fn take(&mut self, stream: &StreamId) -> Option<(StreamId, Entry)> {
        self.requested.take(stream).or_else(|| self.other.take(stream))
    }
}

impl Generations {
    fn find(&self, stream: &StreamId) -> Option<&Entry> {
        self.young.get(stream).or_else(|| self.old.get(stream))
    }

    fn take(&mut self, stream: &StreamId) -> Option<(StreamId, Entry)> {
        self.young.remove_entry(stream).or_else(|| self.old.remove_entry(stream))
    }

    fn keep(&mut self, capacity: usize, stream: StreamId, entry: Entry) {
        if self.young.len() >= capacity {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(stream, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(id: &str) -> StreamId {
        StreamId::new("job", id)
    }

    fn store(cache: &Cache, id: &str) {
        cache.put(stream(id), Arc::new(id.to_string()), (1, 0));
    }

    fn is_cached(cache: &Cache, id: &str) -> bool {
        cache.version(&stream(id)) > 0
    }

    #[test]
    fn requested_states_stay_and_the_rest_is_removed() {
        let cache = Cache::of(8);
        for id in ["a", "b", "c", "d"] {
            store(&cache, id);
        }
        assert_eq!(*cache.get::<String>(&stream("a")).unwrap().0, "a");
        // Of the states that were never requested, the cache keeps the two newest generations.
        for id in 0..100 {
            store(&cache, &id.to_string());
        }
        assert!(is_cached(&cache, "a") && is_cached(&cache, "99") && is_cached(&cache, "97"));
        assert!(!is_cached(&cache, "b") && !is_cached(&cache, "90"));
        // Among the requested states, the oldest is removed unless it is requested again.
        for id in ["b", "c", "d", "e", "f"] {
            store(&cache, id);
            assert!(cache.get::<String>(&stream(id)).is_some());
            assert!(cache.get::<String>(&stream("b")).is_some());
        }
        assert!(!is_cached(&cache, "a"));
    }

    #[test]
    fn older_state_does_not_replace_a_newer_one() {
        let cache = Cache::of(4);
        cache.put(stream("a"), Arc::new(2u8), (2, 0));
        cache.put(stream("a"), Arc::new(1u8), (1, 0));
        assert_eq!(cache.get::<u8>(&stream("a")).unwrap(), (Arc::new(2), 2));
        cache.put(stream("a"), Arc::new(1u8), (1, 0));
        assert_eq!(cache.get::<u8>(&stream("a")).unwrap(), (Arc::new(2), 2));
        cache.put(stream("a"), Arc::new(3u8), (3, 0));
        assert_eq!(cache.get::<u8>(&stream("a")).unwrap(), (Arc::new(3), 3));
        assert!(cache.get::<u16>(&stream("a")).is_none());
        cache.remove(&stream("a"));
        assert!(cache.get::<u8>(&stream("a")).is_none());
    }

    #[test]
    fn state_that_was_read_before_a_clear_is_not_stored() {
        let cache = Cache::of(4);
        let era = cache.clear_count();
        cache.clear();
        cache.put(stream("a"), Arc::new(1u8), (1, era));
        assert!(cache.get::<u8>(&stream("a")).is_none());
        cache.put(stream("a"), Arc::new(1u8), (1, cache.clear_count()));
        assert!(cache.get::<u8>(&stream("a")).is_some());
    }
}
