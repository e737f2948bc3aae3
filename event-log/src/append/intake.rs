//! Intake: a commit that its caller's task has validated, serialized and hashed.
use std::{borrow::Cow, collections::HashSet, sync::Arc};

use proof::{
    Hash,
    leaf::{self, Salt, metadata_hash, payload_hash},
};
use ulid::Ulid;

use crate::{
    AppendError, Commit, ConsumerGuard, IdempotencyKey, NewEvent, SessionGuard, StreamId, Write,
    encryption::{EventContext, Keys},
    ids::new_ulid,
    stored::ReadablePayload,
};

/// Maximum size of one event in bytes: payload and metadata, before encryption.
pub(crate) const EVENT_BYTES: usize = 64 * 1024;
/// Maximum number of events in a batch, and so in a commit.
pub(crate) const BATCH_EVENTS: usize = 1_024;
/// Maximum size of a batch in bytes, and so of a commit.
pub(crate) const BATCH_BYTES: usize = 1024 * 1024;

/// Number of bytes for which a commit occupies one more slot of the queue.
const BYTES_PER_UNIT: usize = 16 * 1024;

/// Commit that lacks only positions.
pub(crate) struct Intake {
    pub writes: Vec<IntakeWrite>,
    pub metadata: Arc<str>,
    pub key: Option<IdempotencyKey>,
    pub consumers: Vec<ConsumerGuard>,
    pub sessions: Vec<SessionGuard>,
    pub events: usize,
    pub bytes: usize,
}

/// Events of a commit for one stream.
pub(crate) struct IntakeWrite {
    pub stream: StreamId,
    pub expected: u64,
    pub events: Vec<IntakeEvent>,
}

/// Event that lacks only its position and its time.
pub(crate) struct IntakeEvent {
    pub event_id: Ulid,
    pub event_type: Cow<'static, str>,
    pub event_version: Cow<'static, str>,
    pub version: u16,
    pub payload: Arc<str>,
    pub readable: ReadablePayload,
    pub salt: Salt,
    pub payload_hash: Hash,
    pub metadata_hash: Hash,
}

impl Intake {
    /// Checks a commit against the limits and does all work that needs no position.
    pub(crate) fn of(commit: Commit, keys: Option<&Keys>) -> Result<Intake, AppendError> {
        let Commit { writes, meta, key, consumers, sessions } = commit;
        let metadata: Arc<str> = serde_json::to_string(&meta)
            .map_err(|_| AppendError::Invalid("its metadata cannot be serialized as JSON"))?
            .into();
        let mut streams = HashSet::new();
        if !writes.iter().all(|write| streams.insert(&write.stream)) {
            return Err(AppendError::Invalid("it has two writes to the same stream; merge them"));
        }
        if writes.is_empty() && key.is_none() && consumers.is_empty() && sessions.is_empty() {
            return Err(AppendError::Invalid(
                "it has no write, no key, no consumer and no session",
            ));
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
            intake.add(write, keys)?;
        }
        within("the number of events in a commit", intake.events, BATCH_EVENTS)?;
        within("the size of a commit in bytes", intake.bytes, BATCH_BYTES)?;
        Ok(intake)
    }

    fn add(&mut self, write: Write, keys: Option<&Keys>) -> Result<(), AppendError> {
        let Write { stream, expected, events: new } = write;
        let mut events = Vec::with_capacity(new.len());
        for (event, sequence) in new.into_iter().zip(expected + 1..) {
            within(
                "the size of an event in bytes",
                event.payload.len() + self.metadata.len(),
                EVENT_BYTES,
            )?;
            let event = IntakeEvent::of(event, (&stream, sequence), &self.metadata, keys)?;
            self.bytes += event.payload.len() + self.metadata.len();
            events.push(event);
        }
        self.events += events.len();
        self.writes.push(IntakeWrite { stream, expected, events });
        Ok(())
    }

    /// Number of slots of the queue that the commit occupies. The slots limit memory, not only the
    /// number of callers.
    pub(crate) fn capacity(&self) -> usize {
        1 + self.bytes / BYTES_PER_UNIT
    }
}

impl IntakeEvent {
    /// Encrypts and hashes an event.
    fn of(
        event: NewEvent,
        (stream, sequence): (&StreamId, u64),
        metadata: &str,
        keys: Option<&Keys>,
    ) -> Result<IntakeEvent, AppendError> {
        let which = EventContext {
            aggregate_type: &stream.aggregate_type,
            aggregate_id: &stream.aggregate_id,
            sequence,
            event_type: &event.event_type,
        };
        let encrypted = keys.map(|keys| event.encrypted(keys, which)).transpose();
        let (payload, readable): (Arc<str>, ReadablePayload) =
            match encrypted.map_err(AppendError::NotEncrypted)?.flatten() {
                Some((stored, readable)) => (stored.into(), Some(Ok(readable.into()))),
                None => (event.payload.into(), None),
            };
        let version = leaf::version(&event.event_version);
        let salt = rand::random();
        Ok(IntakeEvent {
            event_id: new_ulid(),
            version: version.ok_or(AppendError::Invalid("an event's version is not a number"))?,
            payload_hash: payload_hash(&salt, payload.as_bytes()),
            metadata_hash: metadata_hash(&salt, metadata.as_bytes()),
            event_type: event.event_type,
            event_version: event.event_version,
            payload,
            readable,
            salt,
        })
    }
}

fn within(what: &'static str, size: usize, limit: usize) -> Result<(), AppendError> {
    if size <= limit { Ok(()) } else { Err(AppendError::TooLarge { what, size, limit }) }
}
