//! Proof bundles: events of a log for offline verification, without a server or a database.
//!
//! A bundle proves that its events are in the log. [`Complete`] states to which extent it also
//! proves that no event of its streams is missing.
//!
//! ```text
//! signer ── signs ──▶ checkpoint (size, root) ◀── consistency ── older checkpoint (`since`)
//!                       ▲            ▲
//!        inclusion, one per event    └─ edge (everything before `from`), then every position from `from` on:
//!                       │                 an event of the stream, or an entry of `others`
//!                     events
//! ```
//!
//! An event's salt is included only with its payload and metadata. A holder of the salt can test
//! guesses of the payload and of the metadata against their hashes. For an event without content,
//! the bundle has the hashes of payload and metadata, which also prove the event.
use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::Hash;

mod base64;
mod check;
mod complete;
mod error;
mod note;
mod streams;
mod text;

pub use self::{
    base64::Base64,
    check::VerifiedBundle,
    complete::Complete,
    error::{BundleError, PositionError},
    streams::StreamProven,
    text::{BundleEncoder, check_canonical},
};
pub(crate) use self::{
    complete::root_matches,
    note::{open_stored, opened},
};

/// Value of [`Bundle::format`].
pub const FORMAT: &str = "stead/bundle/v1";
/// Media type of a bundle.
pub const MEDIA_TYPE: &str = "application/vnd.stead.bundle.v1+json";
/// Maximum size of a bundle in bytes. [`Bundle::read`] rejects a longer file.
pub const MAX_BYTES: usize = 256 << 20;
/// Maximum number of other entries that a server puts in a bundle.
pub const MAX_OTHERS: u64 = 500_000;

/// Proof bundle. Its bytes are these fields in this order, as JSON without whitespace. Each bundle
/// has exactly one encoding, except for an optional line feed at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// Format, always [`FORMAT`].
    pub format: String,
    /// The event or the streams that the bundle proves.
    pub subject: Subject,
    /// Verifier key of the checkpoint. It names the signer, but does not make the signer trusted.
    pub signer: String,
    /// C2SP signed note with the root that all proofs are verified against.
    pub checkpoint: String,
    /// Older checkpoint, with the proof that the log has only grown since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// Names and reasons that the server added. No proof covers them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Events, by position.
    pub events: Vec<Event>,
    /// Entries of other streams from a position on. They prove that the bundle contains every event
    /// of the subject from this position on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<OtherEntries>,
}

/// Subject of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// One event.
    Position(u64),
    /// All events of `<aggregate type>/<aggregate id>`.
    Stream(String),
    /// All events of several streams, for example of an install, its runs, jobs, builds and
    /// runners. The names of the streams are sorted.
    Streams(Vec<String>),
}

/// Statements of the server about events of the bundle. Their source is outside the log, or
/// encrypted in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Annotations {
    /// Display names of principals, by id. Absent: not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<BTreeMap<String, String>>,
    /// Decrypted reasons of events, by position. Absent: not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasons: Option<BTreeMap<u64, String>>,
}

/// Consistency proof from an older checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Since {
    /// Verifier key of the older checkpoint.
    pub signer: String,
    /// Signed note of the older checkpoint.
    pub checkpoint: String,
    /// RFC 6962 consistency proof from the older checkpoint's size to the size of the newer
    /// checkpoint.
    pub consistency: Vec<Base64<Hash>>,
}

/// Event: the fields of its leaf, and its inclusion proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Position in the log, from 1.
    pub position: u64,
    /// Event id, `evt_` and a ULID.
    pub event_id: String,
    /// Aggregate type of the stream.
    pub aggregate_type: String,
    /// Aggregate id of the stream.
    pub aggregate_id: String,
    /// Sequence number in the stream, from 1.
    pub sequence: u64,
    /// Event type, `<aggregate>.<past-tense verb>`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Version of the payload format.
    pub version: u16,
    /// Recording time in microseconds since 1970, UTC, by the server's clock.
    pub recorded_at_us: i64,
    /// Payload and metadata, or their hashes.
    pub content: Content,
    /// RFC 6962 inclusion proof of leaf `position − 1` in the checkpoint's tree.
    pub inclusion: Vec<Base64<Hash>>,
}

/// Payload and metadata, or the hashes that the leaf contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Content {
    /// Content as stored. The hashes cover the UTF-8 bytes of payload and metadata.
    Open {
        /// Salt of the payload hash and of the metadata hash.
        salt: Base64<[u8; 16]>,
        /// Payload, JSON.
        payload: String,
        /// Metadata, JSON: actor, cause and route.
        metadata: String,
    },
    /// Hashes in place of the content.
    Hashes {
        /// SHA-256 of 0x10, salt and payload.
        payload: Base64<Hash>,
        /// SHA-256 of 0x11, salt and metadata.
        metadata: Base64<Hash>,
    },
}

/// Entries of the log from a position on, without the events of the bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherEntries {
    /// First position of the range. The last is the checkpoint's size.
    pub from: u64,
    /// Hashes of the perfect subtrees that cover leaves `1..from`, largest first.
    pub edge: Vec<Base64<Hash>>,
    /// RFC 6962 entries in order, without those of `events`.
    pub entries: Vec<Base64<Vec<u8>>>,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Position(position) => write!(f, "position {position}"),
            Subject::Stream(stream) => f.write_str(stream),
            Subject::Streams(streams) => match streams.iter().find(|s| s.starts_with("install/")) {
                Some(install) => write!(f, "{install} with its runs, jobs and builds"),
                None => write!(f, "{} streams", streams.len()),
            },
        }
    }
}
