use std::{borrow::Cow, sync::Arc};

use domain::{
    decider::{Event, Timestamp},
    upcast,
};
use proof::{
    Hash,
    leaf::{self, Leaf, Salt, metadata_hash, payload_hash},
};
use sqlx::{Row, postgres::PgRow};
use ulid::Ulid;
use uuid::Uuid;

use crate::{
    LogError, Meta, StreamId,
    encryption::{self, EventContext, Keys},
};

/// Columns that [`StoredEvent::read`] needs.
pub(crate) const COLUMNS: &str = "position, event_id, aggregate_type, aggregate_id, sequence, \
    event_type, event_version, payload::text as payload, metadata::text as metadata, salt, leaf, \
    chain, commit_no, recorded_at";

/// An event as the log stores it, with its hashes and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Index in the whole log, from 1, without gaps.
    pub position: u64,
    /// Globally unique id.
    pub event_id: Ulid,
    pub stream: StreamId,
    /// Index in the stream, from 1.
    pub sequence: u64,
    /// Type of the event, in the form `aggregate.verb_past`.
    pub event_type: Cow<'static, str>,
    /// Version of the payload's schema.
    pub event_version: Cow<'static, str>,
    /// JSON, byte for byte as it was hashed. Personal data fields in it are encrypted.
    pub payload: Arc<str>,
    pub(crate) readable: ReadablePayload,
    /// A flat JSON object of strings ([`Meta`]), byte for byte as it was hashed.
    pub metadata: Arc<str>,
    /// Salt that prevents guessing the payload from its hash. A proof includes it only with the
    /// payload.
    pub salt: Salt,
    /// Hash of the event in the tree.
    pub leaf: Hash,
    /// Hash over all events up to this one.
    pub chain: Hash,
    /// Number of the batch that wrote the event.
    pub commit_no: u64,
    /// Time at which the log recorded the event. Times never decrease along positions.
    pub recorded_at: Timestamp,
}

/// Payload with decrypted fields, or the reason why they cannot be decrypted. `None` if the stored
/// payload has no encrypted fields.
pub(crate) type ReadablePayload = Option<Result<Arc<str>, Arc<str>>>;

impl StoredEvent {
    /// Decodes the event. An event of an older version can upcast to several.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if this program cannot decode it.
    pub fn decode<E: Event>(&self) -> Result<Vec<E>, LogError> {
        upcast::read(&self.event_type, &self.event_version, self.readable()?)
            .map_err(|error| self.damaged(&error))
    }

    /// Returns the payload with decrypted fields. A field with a shredded key reads `[erased]`.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if the encrypted fields were not decrypted.
    pub fn readable(&self) -> Result<&str, LogError> {
        match &self.readable {
            None => Ok(&self.payload),
            Some(Ok(readable)) => Ok(readable),
            Some(Err(why)) => Err(self.damaged(why)),
        }
    }

    /// Decrypts the fields of the payload.
    pub(crate) fn open(&mut self, keys: &Keys) {
        let which = EventContext {
            aggregate_type: &self.stream.aggregate_type,
            aggregate_id: &self.stream.aggregate_id,
            sequence: self.sequence,
            event_type: &self.event_type,
        };
        self.readable = match keys.open(&self.payload, which) {
            Ok(readable) => readable.map(|readable| Ok(readable.into())),
            Err(why) => Some(Err(why.into())),
        };
    }

    /// Parses the metadata.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if it cannot be parsed.
    pub fn meta(&self) -> Result<Meta, LogError> {
        serde_json::from_str(&self.metadata).map_err(|error| self.damaged(&error))
    }

    /// Returns the leaf, computed from the fields that it covers, or `None` if the event's version
    /// is not a number.
    pub fn computed_leaf(&self) -> Option<Leaf<'_>> {
        Some(Leaf {
            position: self.position,
            event_id: self.event_id.to_bytes(),
            aggregate_type: &self.stream.aggregate_type,
            aggregate_id: &self.stream.aggregate_id,
            sequence: self.sequence,
            event_type: &self.event_type,
            event_version: leaf::version(&self.event_version)?,
            recorded_at_us: self.recorded_at.timestamp_micros(),
            payload_hash: payload_hash(&self.salt, self.payload.as_bytes()),
            metadata_hash: metadata_hash(&self.salt, self.metadata.as_bytes()),
        })
    }

    pub(crate) fn damaged(&self, error: &dyn std::fmt::Display) -> LogError {
        let what = format!("{} version {}: {error}", self.event_type, self.event_version);
        LogError::Damaged { position: self.position, what }
    }

    pub(crate) fn read(row: &PgRow) -> Result<StoredEvent, LogError> {
        let position = number(row.try_get("position")?);
        let counted = |column: &str| -> Result<u64, LogError> {
            let value: i64 = row.try_get(column)?;
            let what = || format!("{column} is {value}");
            u64::try_from(value).map_err(|_| LogError::Damaged { position, what: what() })
        };
        let bytes = |column: &str| -> Result<Vec<u8>, LogError> { Ok(row.try_get(column)?) };
        let payload: String = row.try_get("payload")?;
        Ok(StoredEvent {
            position: counted("position")?,
            event_id: Ulid::from_bytes(*row.try_get::<Uuid, _>("event_id")?.as_bytes()),
            stream: StreamId {
                aggregate_type: row.try_get("aggregate_type")?,
                aggregate_id: row.try_get("aggregate_id")?,
            },
            sequence: counted("sequence")?,
            event_type: Cow::Owned(row.try_get("event_type")?),
            event_version: Cow::Owned(row.try_get("event_version")?),
            readable: not_decrypted(&payload),
            payload: payload.into(),
            metadata: row.try_get::<String, _>("metadata")?.into(),
            salt: fixed(bytes("salt")?, position, "salt")?,
            leaf: fixed(bytes("leaf")?, position, "leaf")?,
            chain: fixed(bytes("chain")?, position, "chain")?,
            commit_no: counted("commit_no")?,
            recorded_at: row.try_get("recorded_at")?,
        })
    }
}

/// Converts a position or version from the database. A negative value becomes 0.
pub(crate) fn number(value: i64) -> u64 {
    value.max(0).cast_unsigned()
}

/// Position or version as the database stores it. No log comes close to 2^63 events.
pub(crate) fn bigint(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn fixed<const N: usize>(
    bytes: Vec<u8>,
    position: u64,
    what: &str,
) -> Result<[u8; N], LogError> {
    bytes.try_into().map_err(|bytes: Vec<u8>| LogError::Damaged {
        position,
        what: format!("{what} has {} bytes, not {N}", bytes.len()),
    })
}

/// Returns an error as the readable payload if the payload has encrypted fields, which are not
/// decrypted yet.
pub(crate) fn not_decrypted(payload: &str) -> ReadablePayload {
    encryption::is_encrypted(payload)
        .then(|| Err("the payload is encrypted, and was not decrypted".into()))
}
