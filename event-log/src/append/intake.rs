//! A commit as the appender wants it: checked, serialised and hashed in its caller's task.
use std::{borrow::Cow, collections::HashSet, sync::Arc};

use proof::{
    Hash,
    leaf::{self, Salt, metadata_hash, payload_hash},
};
use ulid::Ulid;

use crate::{
    AppendError, CommandKey, Commit, ConsumerGuard, SessionGuard, StreamId,
    sealed::{Keys, Which},
    stored::Said,
};

/// The most bytes of one event, payload and metadata together, before anything in it is sealed.
pub(crate) const EVENT_BYTES: usize = 64 * 1024;
/// The most events of one batch, and so of one commit.
pub(crate) const BATCH_EVENTS: usize = 1_024;
/// The most bytes of one batch, and so of one commit.
pub(crate) const BATCH_BYTES: usize = 1024 * 1024;

/// How many bytes take one more place in the queue.
const PLACE_BYTES: usize = 16 * 1024;

/// A commit, ready to be numbered.
pub(crate) struct Intake {
    pub writes: Vec<IntakeWrite>,
    pub metadata: Arc<str>,
    pub key: Option<CommandKey>,
    pub consumers: Vec<ConsumerGuard>,
    pub sessions: Vec<SessionGuard>,
    pub events: usize,
    pub bytes: usize,
}

/// The events for one stream.
pub(crate) struct IntakeWrite {
    pub stream: StreamId,
    pub expected: u64,
    pub events: Vec<IntakeEvent>,
}

/// An event that lacks only its position and its time.
pub(crate) struct IntakeEvent {
    pub event_id: Ulid,
    pub event_type: Cow<'static, str>,
    pub event_version: Cow<'static, str>,
    pub version: u16,
    pub payload: Arc<str>,
    pub said: Said,
    pub salt: Salt,
    pub payload_hash: Hash,
    pub metadata_hash: Hash,
}

impl Intake {
    /// Check a commit against the limits and do all the work that needs no position.
    pub(crate) fn of(commit: Commit, keys: Option<&Keys>) -> Result<Intake, AppendError> {
        let Commit { writes, meta, key, consumers, sessions } = commit;
        let metadata: Arc<str> = serde_json::to_string(&meta)
            .map_err(|_| AppendError::Invalid("its metadata is not text"))?
            .into();
        let mut streams = HashSet::new();
        if !writes.iter().all(|write| streams.insert(&write.stream)) {
            return Err(AppendError::Invalid("it writes to a stream twice"));
        }
        let mut intake = Intake {
            writes: Vec::with_capacity(writes.len()),
            metadata,
            key,
            consumers,
            sessions,
            events: 0,
            bytes: 0,
        };
        for write in writes {
            let mut events = Vec::with_capacity(write.events.len());
            for (event, sequence) in write.events.into_iter().zip(write.expected + 1..) {
                let size = event.payload.len() + intake.metadata.len();
                within("an event", size, EVENT_BYTES)?;
                let which = Which {
                    aggregate_type: &write.stream.aggregate_type,
                    aggregate_id: &write.stream.aggregate_id,
                    sequence,
                    event_type: &event.event_type,
                };
                let sealed = keys.map(|keys| event.sealed(keys, which)).transpose();
                let sealed = sealed.map_err(AppendError::Unsealed)?.flatten();
                let (payload, said): (Arc<str>, Said) = match sealed {
                    Some((stored, said)) => (stored.into(), Some(Ok(said.into()))),
                    None => (event.payload.into(), None),
                };
                intake.events += 1;
                intake.bytes += payload.len() + intake.metadata.len();
                let version = leaf::version(&event.event_version);
                let salt = rand::random();
                events.push(IntakeEvent {
                    event_id: Ulid::new(),
                    version: version
                        .ok_or(AppendError::Invalid("an event's version is no number"))?,
                    payload_hash: payload_hash(&salt, payload.as_bytes()),
                    metadata_hash: metadata_hash(&salt, intake.metadata.as_bytes()),
                    event_type: event.event_type,
                    event_version: event.event_version,
                    payload,
                    said,
                    salt,
                });
            }
            let (stream, expected) = (write.stream, write.expected);
            intake.writes.push(IntakeWrite { stream, expected, events });
        }
        if intake.writes.is_empty()
            && intake.key.is_none()
            && intake.consumers.is_empty()
            && intake.sessions.is_empty()
        {
            return Err(AppendError::Invalid(
                "it has no write, no key, no consumer and no session",
            ));
        }
        within("a commit's events", intake.events, BATCH_EVENTS)?;
        within("a commit", intake.bytes, BATCH_BYTES)?;
        Ok(intake)
    }

    /// How many places it takes in the queue, so that memory is bounded and not only the number of callers.
    pub(crate) fn places(&self) -> usize {
        1 + self.bytes / PLACE_BYTES
    }
}

fn within(what: &'static str, size: usize, limit: usize) -> Result<(), AppendError> {
    if size <= limit { Ok(()) } else { Err(AppendError::TooLarge { what, size, limit }) }
}
