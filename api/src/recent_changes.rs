//! Streams of the recent events, which tell whether a change concerns an open page of the dashboard.
use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Mutex, PoisonError},
};

use event_log::{StoredEvent, StreamId};

/// Number of events that the server remembers. An older change concerns every page.
const CAPACITY: usize = 8_192;

/// Streams of the newest events, by position. The loop that follows the log records each event once.
#[derive(Default)]
pub(crate) struct RecentChanges(Mutex<Recent>);

#[derive(Default)]
struct Recent {
    /// Position before the oldest remembered event.
    after: u64,
    /// Streams of the events after it, without gaps.
    streams: VecDeque<StreamId>,
}

impl RecentChanges {
    /// Remembers the streams of later events.
    pub(crate) fn record(&self, events: &[StoredEvent]) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            let next = recent.after + recent.streams.len() as u64 + 1;
            if event.position < next {
                continue;
            }
            if event.position > next {
                *recent = Recent { after: event.position - 1, streams: VecDeque::new() };
            }
            recent.streams.push_back(event.stream.clone());
            if recent.streams.len() > CAPACITY {
                recent.streams.pop_front();
                recent.after += 1;
            }
        }
    }

    /// Returns those of the keys whose streams changed after a position and up to another. A key is
    /// the type of an aggregate, or a stream. Returns `None` if some of the events are unknown.
    pub(crate) fn among<'k>(
        &self,
        keys: &'k BTreeSet<String>,
        (after, last): (u64, u64),
    ) -> Option<BTreeSet<&'k str>> {
        let recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = usize::try_from(after.checked_sub(recent.after)?).ok()?;
        let to = usize::try_from(last.checked_sub(recent.after)?).ok()?;
        if to > recent.streams.len() {
            return None;
        }
        let mut found = BTreeSet::new();
        for stream in recent.streams.range(from.min(to)..to) {
            let names = [stream.aggregate_type.clone(), stream.to_string()];
            found.extend(names.iter().filter_map(|name| keys.get(name)).map(String::as_str));
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(ToString::to_string).collect()
    }

    fn recent(after: u64, streams: &[(&str, &str)]) -> RecentChanges {
        let streams = streams.iter().map(|(kind, id)| StreamId::new(*kind, *id)).collect();
        RecentChanges(Mutex::new(Recent { after, streams }))
    }

    #[test]
    fn change_concerns_the_key_of_its_type_or_its_stream() {
        let changes = recent(10, &[("run", "a"), ("run", "b"), ("job", "c")]);
        let all = keys(&["run/a", "job", "install"]);
        let among = |range| changes.among(&all, range).map(|found| found.into_iter().collect());
        assert_eq!(among((10, 13)), Some(vec!["job", "run/a"]));
        assert_eq!(among((11, 12)), Some(vec![]));
        assert_eq!(among((13, 13)), Some(vec![]));
    }

    #[test]
    fn unknown_change_concerns_every_key() {
        let (changes, key) = (recent(10, &[("run", "a")]), keys(&["install"]));
        assert_eq!(changes.among(&key, (9, 11)), None);
        assert_eq!(changes.among(&key, (10, 12)), None);
    }
}
