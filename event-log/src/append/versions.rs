//! Versions of recently written streams.
//!
//! A version only grows, so a commit that expects a smaller version is stale. The batch omits stale
//! commits, which saves the other commits a round trip. The statement still looks up their
//! idempotency keys, because an earlier attempt may have written the same commit. The cached
//! versions have no other purpose: the database decides every guard.
use std::collections::{HashMap, HashSet};

use super::queue::PendingCommit;
use crate::{StoredEvent, StreamId};

/// Maximum number of streams in a generation.
const GENERATION: usize = 32_768;

/// Versions in two generations: a stream that was not written during a whole generation is evicted.
#[derive(Default)]
pub(crate) struct Versions {
    young: HashMap<StreamId, u64>,
    old: HashMap<StreamId, u64>,
}

impl Versions {
    /// Records events that were written.
    pub(crate) fn record_events(&mut self, events: &[StoredEvent]) {
        for event in events {
            self.record(&event.stream, event.sequence);
        }
    }

    /// Records the versions that the database reported for stale streams.
    pub(crate) fn record_stale(&mut self, stale: &HashMap<(String, String), u64>) {
        for ((kind, id), version) in stale {
            self.record(&StreamId::new(kind, id), *version);
        }
    }

    fn record(&mut self, stream: &StreamId, version: u64) {
        if let Some(known) = self.young.get_mut(stream) {
            *known = version.max(*known);
            return;
        }
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(stream.clone(), version);
    }

    /// Removes all versions, because the log may have another history.
    pub(crate) fn clear(&mut self) {
        *self = Versions::default();
    }

    /// Streams for which some of these commits are stale.
    pub(crate) fn stale_streams(&mut self, commits: &[PendingCommit]) -> StaleStreams {
        let mut stale = StaleStreams::default();
        for write in commits.iter().flat_map(|pending| &pending.intake.writes) {
            let known = self.young.get(&write.stream).or_else(|| self.old.get(&write.stream));
            if let Some(known) = known.copied().filter(|known| *known > write.expected) {
                // More stale commits are likely: keep the stream in the young generation.
                self.record(&write.stream, known);
                let StreamId { aggregate_type, aggregate_id } = write.stream.clone();
                stale.streams.insert((aggregate_type, aggregate_id));
            }
        }
        stale
    }
}

/// Streams to which a stale commit writes. The batch omits every commit that writes to one of them.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct StaleStreams {
    pub streams: HashSet<(String, String)>,
}

impl StaleStreams {
    /// Returns true if a commit is stale.
    pub(crate) fn contains(&self, pending: &PendingCommit) -> bool {
        !self.streams.is_empty()
            && pending.intake.writes.iter().any(|write| {
                let stream = &write.stream;
                self.streams.contains(&(stream.aggregate_type.clone(), stream.aggregate_id.clone()))
            })
    }
}
