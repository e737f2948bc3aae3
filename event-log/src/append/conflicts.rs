//! Conflicts: guards that failed, and the commits that they reject.
use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::Value;

use super::{queue::PendingCommit, versions::StaleStreams};
use crate::{AppendError, StreamId, stored::number};

/// Failed guards of a batch.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    /// Streams that do not have the expected version, with their current version; 0 if the batch
    /// did not query it.
    pub stale: HashMap<(String, String), u64>,
    /// Idempotency keys in use, by principal and key.
    pub used_keys: HashMap<(String, String), UsedKey>,
    /// Consumers whose position or owner changed, by name, version and shard.
    pub consumers: HashSet<(String, i32, i32)>,
    /// Runners whose session does not have the expected owner.
    pub sessions: HashSet<String>,
}

/// Idempotency key that an earlier commit used.
#[derive(Debug, Deserialize)]
pub(crate) struct UsedKey {
    pub principal: String,
    pub key: String,
    /// SHA-256 of the request, in hexadecimal.
    pub request_hash: String,
    pub first: i64,
    pub last: i64,
    pub response: Option<Value>,
}

impl Conflicts {
    pub(crate) fn is_empty(&self) -> bool {
        self.has_only_keys() && self.used_keys.is_empty()
    }

    /// Returns true if all failed guards, if any, are idempotency keys.
    pub(crate) fn has_only_keys(&self) -> bool {
        self.stale.is_empty() && self.consumers.is_empty() && self.sessions.is_empty()
    }

    /// Adds the streams of the stale commits, which the batch omits.
    pub(crate) fn add_stale(&mut self, stale: StaleStreams) {
        self.stale.extend(stale.streams.into_iter().map(|stream| (stream, 0)));
    }

    /// Rejects every commit that has a conflict and keeps the others.
    pub(crate) fn reject(&self, commits: &mut Vec<PendingCommit>) {
        for pending in std::mem::take(commits) {
            match self.error(&pending) {
                None => commits.push(pending),
                Some(error) => pending.respond(Err(error)),
            }
        }
    }

    /// Returns the error of a commit. A used key has precedence: a repeated command can also have a
    /// version conflict with its own earlier commit.
    fn error(&self, pending: &PendingCommit) -> Option<AppendError> {
        let intake = &pending.intake;
        if let Some(key) = &intake.key
            && let Some(used) = self.used_keys.get(&(key.principal.clone(), key.key.clone()))
        {
            return Some(if used.request_hash == hex::encode(key.request_hash) {
                AppendError::KeyUsed {
                    first_position: number(used.first),
                    last_position: number(used.last),
                    response: used.response.clone(),
                }
            } else {
                AppendError::KeyMismatch
            });
        }
        let moved = intake.consumers.iter().filter(|guard| {
            self.consumers.contains(&(guard.name.clone(), guard.version, guard.shard))
        });
        let consumers: Vec<_> = moved.map(|guard| guard.name.clone()).collect();
        if !consumers.is_empty() {
            return Some(AppendError::ConsumerMoved { consumers });
        }
        let runners = intake.sessions.iter().map(|session| &session.runner);
        let runners: Vec<_> =
            runners.filter(|runner| self.sessions.contains(*runner)).cloned().collect();
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
