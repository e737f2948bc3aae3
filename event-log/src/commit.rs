//! Commits: events for streams, written completely or not at all, with guards.
use std::borrow::Cow;

use domain::{
    decider::{Event, Timestamp},
    ids::InstallId,
};
use serde_json::Value;

use crate::{Meta, StreamId};

/// An event to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Type of the event, in the form `aggregate.verb_past`.
    pub event_type: Cow<'static, str>,
    /// Version of the payload's schema, starting with `"1"`.
    pub event_version: Cow<'static, str>,
    /// One JSON object, stored byte for byte. Only personal data fields are encrypted first
    /// (`domain::erasure`).
    pub payload: String,
    /// Install whose customer the event is about; `None` if the event concerns no customer.
    pub customer: Option<InstallId>,
}

impl NewEvent {
    /// Encodes an event of the domain.
    ///
    /// # Errors
    /// If the event has no JSON form, which does not happen for events of the domain.
    pub fn of<E: Event>(event: &E) -> Result<NewEvent, serde_json::Error> {
        Ok(NewEvent {
            event_type: Cow::Borrowed(event.name()),
            event_version: Cow::Borrowed(event.version()),
            payload: serde_json::to_string(event)?,
            customer: None,
        })
    }

    #[must_use]
    pub fn with_customer(self, customer: Option<InstallId>) -> NewEvent {
        NewEvent { customer, ..self }
    }
}

/// Events for one stream. Without events, the write is only a guard: the stream must have the
/// expected version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub stream: StreamId,
    /// Expected sequence of the stream's last event; 0 if the stream must not exist.
    pub expected: u64,
    pub events: Vec<NewEvent>,
}

/// An idempotency key. The same request with the same key gets the same response.
#[derive(Debug, Clone, PartialEq)]
pub struct IdempotencyKey {
    /// Principal that owns the key. Two principals may use equal keys.
    pub principal: String,
    /// Key of the request. The same principal must not use it for another request.
    pub key: String,
    /// SHA-256 of the request. Another request with the same key is rejected.
    pub request_hash: [u8; 32],
    /// Response that the log stores with the key and returns for a repeated request, if any.
    pub response: Option<Value>,
}

/// Guard: the consumer of a reaction must have this position and owner. The commit does not advance
/// the consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerGuard {
    pub name: String,
    /// Version of the consumer. Each version has its own position.
    pub version: i32,
    /// Shard of the consumer; 0 if it has no shards.
    pub shard: i32,
    pub expected: u64,
    pub owner_epoch: u64,
}

/// Guard: this server must own the session of the runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionGuard {
    pub runner: String,
    /// Server that must own the session.
    pub server: String,
    /// Epoch of that server.
    pub server_epoch: u64,
}

/// The effects of one command, written completely or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    /// Events, at most one entry per stream.
    pub writes: Vec<Write>,
    pub meta: Meta,
    /// Idempotency key; `None` if a repeated command need not be recognized.
    pub key: Option<IdempotencyKey>,
    /// Consumers that must have the expected position and owner.
    pub consumers: Vec<ConsumerGuard>,
    /// Sessions that this server must own.
    pub sessions: Vec<SessionGuard>,
}

impl Commit {
    /// Creates a commit of these writes without an idempotency key or further guards.
    pub fn of(meta: Meta, writes: Vec<Write>) -> Commit {
        Commit { writes, meta, key: None, consumers: Vec::new(), sessions: Vec::new() }
    }
}

/// Location of a commit in the log. Without events, `first` is `last + 1`, and `last` is the
/// position at which all its guards held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Position of the first event.
    pub first: u64,
    /// Position of the last event.
    pub last: u64,
    /// Number of the batch that wrote the commit.
    pub commit_no: u64,
    /// Time at which the log recorded the batch.
    pub recorded_at: Timestamp,
}
