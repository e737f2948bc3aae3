//! Cache of unwrapped subject keys.
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{Key, Keys};

/// Maximum number of keys in a generation.
const GENERATION: usize = 10_000;

/// Two generations of keys. A key that is not used during a whole generation is removed.
#[derive(Default)]
pub(super) struct KeyCache(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<String, Key>,
    old: HashMap<String, Key>,
}

impl KeyCache {
    /// Returns the cached keys of these subjects, and the subjects without a cached key.
    pub(super) fn cached(&self, subjects: BTreeSet<String>) -> (Keys, Vec<String>) {
        let mut generations = self.lock();
        let (mut keys, mut missing) = (Keys::default(), vec![]);
        for subject in subjects {
            match generations.get(&subject) {
                Some(key) => drop(keys.0.insert(subject, key)),
                None => missing.push(subject),
            }
        }
        (keys, missing)
    }

    /// Caches a key that was read, unless it was shredded meanwhile. Returns the current state of
    /// the key.
    pub(super) fn keep(&self, subject: &str, key: Key) -> Key {
        let mut generations = self.lock();
        match generations.get(subject) {
            Some(Key::Shredded) => Key::Shredded,
            Some(Key::Open(_) | Key::Missing(_)) | None => {
                // A missing key may be restored, so it is read again the next time.
                if !matches!(key, Key::Missing(_)) {
                    generations.put(subject.to_owned(), key.clone());
                }
                key
            }
        }
    }

    /// Caches the state of a subject's key, and replaces an earlier one.
    pub(super) fn put(&self, subject: String, key: Key) {
        let mut generations = self.lock();
        generations.old.remove(&subject);
        generations.put(subject, key);
    }

    pub(super) fn clear(&self) {
        *self.lock() = Generations::default();
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn get(&mut self, subject: &str) -> Option<Key> {
        if let Some(key) = self.young.get(subject) {
            return Some(key.clone());
        }
        let (subject, key) = self.old.remove_entry(subject)?;
        self.put(subject, key.clone());
        Some(key)
    }

    fn put(&mut self, subject: String, key: Key) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&subject) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(subject, key);
    }
}
