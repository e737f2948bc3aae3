//! Which commits kept a batch from being written, and what each is told.
use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::Value;

use super::{queue::Pending, versions::StaleStreams};
use crate::{AppendError, StreamId, stored::number};

/// What the statement says about guards that did not hold.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    /// And where they are.
    pub stale: HashMap<(String, String), u64>,
    pub known: HashMap<(String, String), UsedKey>,
    pub consumers: HashSet<(String, i32, i32)>,
    pub sessions: HashSet<String>,
}

/// A key that was used before.
#[derive(Debug, Deserialize)]
pub(crate) struct UsedKey {
    pub principal: String,
    pub key: String,
    /// In hex.
    pub request_hash: String,
    pub first: i64,
    pub last: i64,
    pub answer: Option<Value>,
}

impl Conflicts {
    pub(crate) fn is_empty(&self) -> bool {
        self.stale.is_empty()
            && self.known.is_empty()
            && self.consumers.is_empty()
            && self.sessions.is_empty()
    }

    /// Blame also those that are known to come too late.
    pub(crate) fn blame(&mut self, late: StaleStreams) {
        self.stale.extend(late.streams.into_iter().map(|stream| (stream, 0)));
    }

    /// Answer every commit that is to blame and keep the others.
    pub(crate) fn take_out(&self, part: &mut Vec<Pending>) {
        let mut innocent = Vec::with_capacity(part.len());
        for pending in part.drain(..) {
            match self.verdict(&pending) {
                None => innocent.push(pending),
                Some(error) => pending.answer(Err(error)),
            }
        }
        *part = innocent;
    }

    /// A known key comes first: a repeated command would also find its stream elsewhere, because of itself.
    fn verdict(&self, pending: &Pending) -> Option<AppendError> {
        let intake = &pending.intake;
        if let Some(key) = &intake.key
            && let Some(known) = self.known.get(&(key.principal.clone(), key.key.clone()))
        {
            return Some(if known.request_hash == hex::encode(key.request_hash) {
                AppendError::KeyUsed {
                    first_position: number(known.first),
                    last_position: number(known.last),
                    answer: known.answer.clone(),
                }
            } else {
                AppendError::KeyMismatch
            });
        }
        let moved = intake
            .consumers
            .iter()
            .filter(|of| self.consumers.contains(&(of.name.clone(), of.version, of.shard)));
        let consumers: Vec<_> = moved.map(|of| of.name.clone()).collect();
        if !consumers.is_empty() {
            return Some(AppendError::ConsumerMoved { consumers });
        }
        let sessions = intake.sessions.iter().map(|session| &session.runner);
        let runners: Vec<_> =
            sessions.filter(|runner| self.sessions.contains(*runner)).cloned().collect();
        if !runners.is_empty() {
            return Some(AppendError::SessionMoved { runners });
        }
        let streams = intake.writes.iter().map(|write| &write.stream);
        let stale: Vec<StreamId> =
            streams.filter(|stream| self.is_stale(stream)).cloned().collect();
        (!stale.is_empty()).then_some(AppendError::Conflict { stale })
    }

    fn is_stale(&self, stream: &StreamId) -> bool {
        self.stale.contains_key(&(stream.aggregate_type.clone(), stream.aggregate_id.clone()))
    }
}
