//! Streams of a bundle's subject: the next expected event and the completeness of each.
use std::collections::HashMap;

use super::{BundleError, Complete, Subject};
use crate::leaf::Leaf;

/// Stream of a bundle, with its completeness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamProven {
    /// `<aggregate type>/<aggregate id>`.
    pub stream: String,
    /// Number of the stream's events in the bundle. Their sequences are 1 to this number.
    pub events: u64,
    /// Position of the stream's last event in the bundle.
    pub last: u64,
    /// Completeness of the stream in the bundle.
    pub complete: Complete,
}

/// Progress of a check in each stream.
pub(super) struct Streams<'a> {
    index: HashMap<(&'a str, &'a str), usize>,
    streams: Vec<Progress<'a>>,
}

struct Progress<'a> {
    name: &'a str,
    events: u64,
    last: u64,
}

impl<'a> Streams<'a> {
    /// Returns the streams that a subject names. A subject of one event names none.
    pub fn of(subject: &'a Subject) -> Result<Streams<'a>, BundleError> {
        let names = match subject {
            Subject::Position(_) => &[],
            Subject::Stream(stream) => std::slice::from_ref(stream),
            Subject::Streams(streams) => {
                if streams.is_empty() || !streams.is_sorted_by(|a, b| a < b) {
                    let why = "its stream names are not sorted, or one is repeated";
                    return Err(BundleError::Unreadable(why.into()));
                }
                streams
            }
        };
        let named = names.iter().enumerate();
        let index = named.filter_map(|(at, name)| Some((name.split_once('/')?, at))).collect();
        let streams = names.iter().map(|name| Progress { name, events: 0, last: 0 }).collect();
        Ok(Streams { index, streams })
    }

    /// Counts an event of one of the streams and returns its expected sequence.
    pub fn next(&mut self, leaf: &Leaf<'_>) -> Option<u64> {
        let at = *self.index.get(&(leaf.aggregate_type, leaf.aggregate_id))?;
        let stream = self.streams.get_mut(at)?;
        stream.events += 1;
        stream.last = leaf.position;
        Some(stream.events)
    }

    /// Returns the subject's stream that a leaf belongs to.
    pub fn name_of(&self, leaf: &Leaf<'_>) -> Option<&'a str> {
        let at = *self.index.get(&(leaf.aggregate_type, leaf.aggregate_id))?;
        self.streams.get(at).map(|stream| stream.name)
    }

    /// Returns a stream without any event.
    pub fn empty(&self) -> Option<&'a str> {
        self.streams.iter().find(|stream| stream.events == 0).map(|stream| stream.name)
    }

    /// Returns each stream with its completeness: [`Complete::Unknown`] if unchecked positions
    /// follow its last event.
    pub fn proven(&self, all: &Complete) -> Vec<StreamProven> {
        let complete = |last: u64| match all {
            Complete::FromSequences { from } if last.saturating_add(1) < *from => {
                Complete::Unknown { last }
            }
            Complete::Unknown { .. } => Complete::Unknown { last },
            Complete::NotApplicable | Complete::FromSequences { .. } | Complete::Whole => {
                all.clone()
            }
        };
        let proven = |stream: &Progress<'_>| StreamProven {
            stream: stream.name.to_owned(),
            events: stream.events,
            last: stream.last,
            complete: complete(stream.last),
        };
        self.streams.iter().map(proven).collect()
    }
}

/// Returns the completeness of all streams together, which is the weakest one.
pub(super) fn weakest(all: Complete, streams: &[StreamProven]) -> Complete {
    let unknown = streams.iter().filter(|stream| match stream.complete {
        Complete::Unknown { .. } => true,
        Complete::NotApplicable | Complete::FromSequences { .. } | Complete::Whole => false,
    });
    unknown.min_by_key(|stream| stream.last).map_or(all, |stream| stream.complete.clone())
}
