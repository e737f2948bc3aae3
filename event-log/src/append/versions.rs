//! How far streams are that were written a moment ago.
//!
//! A version only grows, so a commit that expects less than what is known comes too late for ever, and must not hold
//! up its neighbours for another round trip. Its idempotency key is asked for all the same: it may come late because
//! it was already carried out. Nothing else is decided from here: where a stream is, the database says.
use std::collections::{HashMap, HashSet};

use super::queue::Pending;
use crate::{Stored, StreamId};

/// How many streams of one generation are remembered.
const GENERATION: usize = 32_768;

/// Two generations: what was not written during one whole generation is forgotten.
#[derive(Default)]
pub(crate) struct Versions {
    young: HashMap<StreamId, u64>,
    old: HashMap<StreamId, u64>,
}

impl Versions {
    /// Take in what was written.
    pub(crate) fn learn(&mut self, events: &[Stored]) {
        for event in events {
            self.note(&event.stream, event.sequence);
        }
    }

    /// Take in where the database found streams that were expected elsewhere.
    pub(crate) fn correct(&mut self, stale: &HashMap<(String, String), u64>) {
        for ((kind, id), version) in stale {
            self.note(&StreamId::new(kind, id), *version);
        }
    }

    fn note(&mut self, stream: &StreamId, version: u64) {
        if let Some(known) = self.young.get_mut(stream) {
            *known = version.max(*known);
            return;
        }
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(stream.clone(), version);
    }

    /// Nothing is known: the log may not be the one it was.
    pub(crate) fn forget(&mut self) {
        *self = Versions::default();
    }

    /// Those that come too late.
    pub(crate) fn late(&mut self, part: &[Pending]) -> StaleStreams {
        let mut late = StaleStreams::default();
        for write in part.iter().flat_map(|pending| &pending.intake.writes) {
            let known = self.young.get(&write.stream).or_else(|| self.old.get(&write.stream));
            if let Some(known) = known.copied().filter(|known| *known > write.expected) {
                // Where one comes too late, others will.
                self.note(&write.stream, known);
                let StreamId { aggregate_type, aggregate_id } = write.stream.clone();
                late.streams.insert((aggregate_type, aggregate_id));
            }
        }
        late
    }
}

/// The streams that some commits of a batch come too late for. No other commit of the batch writes to them.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct StaleStreams {
    pub streams: HashSet<(String, String)>,
}

impl StaleStreams {
    /// Whether a commit comes too late.
    pub(crate) fn is(&self, pending: &Pending) -> bool {
        !self.streams.is_empty()
            && pending.intake.writes.iter().any(|write| {
                let stream = &write.stream;
                self.streams.contains(&(stream.aggregate_type.clone(), stream.aggregate_id.clone()))
            })
    }
}
