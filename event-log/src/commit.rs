//! What is asked of the log: events for streams, all or nothing, under conditions.
use std::borrow::Cow;

use domain::{
    decider::{Event, Timestamp},
    ids::InstallId,
};
use serde_json::Value;

use crate::{Meta, StreamId};

/// An event that is not yet in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// `aggregate.verb_past`.
    pub event_type: Cow<'static, str>,
    /// Which shape the payload has, `"1"` first.
    pub event_version: Cow<'static, str>,
    /// One JSON object, byte for byte as it is to be kept; but for what is somebody's (`domain::erasure`).
    pub payload: String,
    /// The customer whose install it is about, if any.
    pub customer: Option<InstallId>,
}

impl NewEvent {
    /// What the domain decided, in the shape that is kept for ever.
    ///
    /// # Errors
    /// If the event has no JSON, which no event of the domain should have.
    pub fn of<E: Event>(event: &E) -> Result<NewEvent, serde_json::Error> {
        Ok(NewEvent {
            event_type: Cow::Borrowed(event.name()),
            event_version: Cow::Borrowed(event.version()),
            payload: serde_json::to_string(event)?,
            customer: None,
        })
    }

    /// The same, about this customer.
    #[must_use]
    pub fn about(self, customer: Option<InstallId>) -> NewEvent {
        NewEvent { customer, ..self }
    }
}

/// Events for one stream. Without events it is a guard: the stream must be where it is expected, and stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Where the events go.
    pub stream: StreamId,
    /// The sequence of the stream's last event when this was decided; 0: there is none.
    pub expected: u64,
    /// In order.
    pub events: Vec<NewEvent>,
}

/// An idempotency key: the same request, repeated, gets the same answer.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandKey {
    /// Whose key it is; two principals may use the same.
    pub principal: String,
    /// The key.
    pub key: String,
    /// What was asked; another request under the same key is refused.
    pub request_hash: [u8; 32],
    /// What to answer when it is asked again.
    pub answer: Option<Value>,
}

/// The consumer that a reaction is of must still be where and whose it was. The commit does not move it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerGuard {
    /// Which consumer.
    pub name: String,
    /// Of which version.
    pub version: i32,
    /// Which of its parts; 0 unless it is sharded.
    pub shard: i32,
    /// Where it must be.
    pub expected: u64,
    /// Whose it must be.
    pub owner_epoch: u64,
}

/// The session of this runner must still be this server's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionGuard {
    /// Whose session.
    pub runner: String,
    /// Which server must own it.
    pub server: String,
    /// In which of its lives.
    pub server_epoch: u64,
}

/// Everything that one command does, all or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    /// At most one per stream.
    pub writes: Vec<Write>,
    /// Who asked, and why.
    pub meta: Meta,
    /// Under which idempotency key.
    pub key: Option<CommandKey>,
    /// Consumers that it depends on.
    pub consumers: Vec<ConsumerGuard>,
    /// Sessions that it depends on.
    pub sessions: Vec<SessionGuard>,
}

impl Commit {
    /// A commit of these writes, without further conditions.
    pub fn of(meta: Meta, writes: Vec<Write>) -> Commit {
        Commit { writes, meta, key: None, consumers: Vec::new(), sessions: Vec::new() }
    }
}

/// Where a commit came to be in the log. Without events `first` is `last + 1`, and `last` is the position at
/// which all its conditions held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The position of its first event.
    pub first: u64,
    /// The position of its last event.
    pub last: u64,
    /// Which batch it was in.
    pub commit_no: u64,
    /// When it was recorded.
    pub recorded_at: Timestamp,
}
