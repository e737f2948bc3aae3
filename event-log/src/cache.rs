//! Aggregates' states that were known a moment ago. Being behind is harmless: the append's guard tells.
use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::StreamId;

/// Two generations: what was not asked for during one whole generation is forgotten.
pub(crate) struct Cache {
    capacity: usize,
    generations: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    young: HashMap<StreamId, Entry>,
    old: HashMap<StreamId, Entry>,
    /// How often everything was forgotten.
    era: u64,
}

#[derive(Clone)]
struct Entry {
    state: Arc<dyn Any + Send + Sync>,
    version: u64,
}

impl Cache {
    /// A cache of about that many states.
    pub(crate) fn of(capacity: usize) -> Cache {
        Cache { capacity: capacity.div_ceil(2).max(1), generations: Mutex::default() }
    }

    /// A state and its version.
    pub(crate) fn get<S: Send + Sync + 'static>(&self, stream: &StreamId) -> Option<(Arc<S>, u64)> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match generations.young.get(stream) {
            Some(entry) => entry.clone(),
            None => {
                let (stream, entry) = generations.old.remove_entry(stream)?;
                generations.keep(self.capacity, stream, entry.clone());
                entry
            }
        };
        Some((entry.state.downcast().ok()?, entry.version))
    }

    /// How often everything was forgotten: to be asked before a state is read that is to be kept.
    pub(crate) fn era(&self) -> u64 {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner).era
    }

    /// Keep a state, unless a newer one is known, or everything was forgotten since it was begun to be read: it may
    /// say what nobody may read any more.
    pub(crate) fn put<S: Send + Sync + 'static>(
        &self,
        stream: StreamId,
        state: Arc<S>,
        (version, era): (u64, u64),
    ) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if generations.era != era {
            return;
        }
        if generations.young.get(&stream).is_none_or(|known| known.version <= version) {
            generations.keep(self.capacity, stream, Entry { state, version });
        }
    }

    /// The version of the state that is known; 0: none is.
    pub(crate) fn version(&self, stream: &StreamId) -> u64 {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let known = generations.young.get(stream).or_else(|| generations.old.get(stream));
        known.map_or(0, |known| known.version)
    }

    /// Forget all states: history is another.
    pub(crate) fn clear(&self) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        *generations = Generations { era: generations.era + 1, ..Generations::default() };
    }

    /// Forget a state.
    pub(crate) fn remove(&self, stream: &StreamId) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.young.remove(stream);
        generations.old.remove(stream);
    }
}

impl Generations {
    fn keep(&mut self, capacity: usize, stream: StreamId, entry: Entry) {
        if self.young.len() >= capacity && !self.young.contains_key(&stream) {
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

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let cache = Cache::of(4);
        for id in ["a", "b", "c"] {
            cache.put(stream(id), Arc::new(id.to_string()), (1, 0));
        }
        assert_eq!(*cache.get::<String>(&stream("a")).unwrap().0, "a");
        cache.put(stream("d"), Arc::new("d".to_string()), (1, 0));
        assert!(cache.get::<String>(&stream("b")).is_none());
        assert!(cache.get::<String>(&stream("a")).is_some());
    }

    #[test]
    fn a_newer_state_is_not_replaced_by_an_older_one() {
        let cache = Cache::of(4);
        cache.put(stream("a"), Arc::new(2u8), (2, 0));
        cache.put(stream("a"), Arc::new(1u8), (1, 0));
        assert_eq!(cache.get::<u8>(&stream("a")).unwrap(), (Arc::new(2), 2));
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
