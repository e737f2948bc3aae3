//! Aggregates' states that were known a moment ago. Being behind is harmless: the append's guard tells.
use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::StreamId;

/// Half of it is for states that were asked for since they came, half for those that were not yet: ten thousand things
/// that are begun and never looked at again push nothing out that is in use.
pub(crate) struct Cache {
    /// Of each of the four generations.
    capacity: usize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    asked_for: Generations,
    unasked: Generations,
    /// How often everything was forgotten.
    era: u64,
}

/// Two of them: what was not touched during one whole generation is forgotten.
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
    /// A cache of about that many states.
    pub(crate) fn of(capacity: usize) -> Cache {
        Cache { capacity: capacity.div_ceil(4).max(1), known: Mutex::default() }
    }

    /// A state and its version.
    pub(crate) fn get<S: Send + Sync + 'static>(&self, stream: &StreamId) -> Option<(Arc<S>, u64)> {
        let mut known = self.known();
        let entry = match known.asked_for.young.get(stream) {
            Some(entry) => entry.clone(),
            None => {
                let (stream, entry) = known.take(stream)?;
                known.asked_for.keep(self.capacity, stream, entry.clone());
                entry
            }
        };
        Some((entry.state.downcast().ok()?, entry.version))
    }

    /// How often everything was forgotten: to be asked before a state is read that is to be kept.
    pub(crate) fn era(&self) -> u64 {
        self.known().era
    }

    /// Keep a state, unless a newer one is known, or everything was forgotten since it was begun to be read: it may
    /// say what nobody may read any more.
    pub(crate) fn put<S: Send + Sync + 'static>(
        &self,
        stream: StreamId,
        state: Arc<S>,
        (version, era): (u64, u64),
    ) {
        let mut known = self.known();
        if known.era != era || known.find(&stream).is_some_and(|newer| newer.version > version) {
            return;
        }
        let is_asked_for = known.asked_for.find(&stream).is_some();
        // Nowhere twice.
        known.take(&stream);
        let generations = if is_asked_for { &mut known.asked_for } else { &mut known.unasked };
        generations.keep(self.capacity, stream, Entry { state, version });
    }

    /// The version of the state that is known; 0: none is.
    pub(crate) fn version(&self, stream: &StreamId) -> u64 {
        self.known().find(stream).map_or(0, |known| known.version)
    }

    /// Forget all states: history is another.
    pub(crate) fn clear(&self) {
        let mut known = self.known();
        *known = Known { era: known.era + 1, ..Known::default() };
    }

    /// Forget a state.
    pub(crate) fn remove(&self, stream: &StreamId) {
        self.known().take(stream);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn find(&self, stream: &StreamId) -> Option<&Entry> {
        self.asked_for.find(stream).or_else(|| self.unasked.find(stream))
    }

    fn take(&mut self, stream: &StreamId) -> Option<(StreamId, Entry)> {
        self.asked_for.take(stream).or_else(|| self.unasked.take(stream))
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

    fn kept(cache: &Cache, id: &str) {
        cache.put(stream(id), Arc::new(id.to_string()), (1, 0));
    }

    fn is_known(cache: &Cache, id: &str) -> bool {
        cache.version(&stream(id)) > 0
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let cache = Cache::of(8);
        for id in ["a", "b", "c", "d"] {
            kept(&cache, id);
        }
        assert_eq!(*cache.get::<String>(&stream("a")).unwrap().0, "a");
        // Much that nobody asks for: two generations of it are known.
        for id in 0..100 {
            kept(&cache, &id.to_string());
        }
        assert!(is_known(&cache, "a") && is_known(&cache, "99") && is_known(&cache, "97"));
        assert!(!is_known(&cache, "b") && !is_known(&cache, "90"));
        // Of what was asked for the oldest goes, if it is not asked for again.
        for id in ["b", "c", "d", "e", "f"] {
            kept(&cache, id);
            assert!(cache.get::<String>(&stream(id)).is_some());
            assert!(cache.get::<String>(&stream("b")).is_some());
        }
        assert!(!is_known(&cache, "a"));
    }

    #[test]
    fn a_newer_state_is_not_replaced_by_an_older_one() {
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
    fn what_was_read_before_everything_was_forgotten_is_not_kept() {
        let cache = Cache::of(4);
        let era = cache.era();
        cache.clear();
        cache.put(stream("a"), Arc::new(1u8), (1, era));
        assert!(cache.get::<u8>(&stream("a")).is_none());
        cache.put(stream("a"), Arc::new(1u8), (1, cache.era()));
        assert!(cache.get::<u8>(&stream("a")).is_some());
    }
}
