//! A bundle: what is handed to somebody who has neither server nor database, so that they can see for themselves that
//! events are in a log, and that none of a stream is missing.
//!
//! ```text
//! signer ── signs ──▶ checkpoint (size, root) ◀── consistency ── an older checkpoint (`since`)
//!                       ▲            ▲
//!        inclusion, one per event    └─ edge (what is before `from`), then every position from `from` to the end:
//!                       │                 an event of the stream, or one of `others`
//!                     events
//! ```
//!
//! An event's salt goes with its payload and metadata and with nothing else: it opens both hashes, and whoever has
//! it can try guesses. An event without them has the two hashes and is proven as well.
use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::Hash;

mod base64;
mod check;
mod complete;
mod fault;
mod note;
mod streams;
mod text;

pub use self::{
    base64::Base64,
    check::Proven,
    complete::Complete,
    fault::{BundleError, Wrong},
    streams::StreamProven,
    text::{Text, spelled},
};
pub(crate) use self::{
    complete::meets,
    note::{kept, opened},
};

/// What the file says that it is.
pub const FORMAT: &str = "stead/bundle/v1";
/// Its media type.
pub const MEDIA_TYPE: &str = "application/vnd.stead.bundle.v1+json";
/// A longer file is not read.
pub const MAX_BYTES: usize = 256 << 20;
/// So many positions after a stream's last event, or in a whole log, are put into a bundle and no more.
pub const MAX_OTHERS: u64 = 500_000;

/// The whole file. Its bytes are these fields in this order, as JSON without a space: one bundle, one text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// [`FORMAT`].
    pub format: String,
    /// What it is about.
    pub subject: Subject,
    /// The verifier key of the checkpoint. It is there to be recognised, not to be believed.
    pub signer: String,
    /// The C2SP signed note that everything leads to.
    pub checkpoint: String,
    /// An older checkpoint, and that the log only grew from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// Names and reasons that the server added. No proof covers them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// The events, by position.
    pub events: Vec<Event>,
    /// The rest of the log from a position on, which shows that no event of the stream is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<Others>,
}

/// What a bundle is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// One event.
    Position(u64),
    /// All events of `<aggregate type>/<aggregate id>`.
    Stream(String),
    /// All events of several streams, in ascending order of their names: an install with its runs, jobs and builds.
    Streams(Vec<String>),
}

/// Statements of the server about events of the bundle. Their source is outside the log, or encrypted in it.
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

/// That the log is the older one, and more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Since {
    /// The verifier key of the older checkpoint.
    pub signer: String,
    /// The older signed note.
    pub checkpoint: String,
    /// RFC 6962 consistency proof from its size to the checkpoint's.
    pub consistency: Vec<Base64<Hash>>,
}

/// One event: the fields of its leaf, and where that is in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Its place in the log, from 1.
    pub position: u64,
    /// `evt_` and a ULID.
    pub event_id: String,
    /// What kind of stream it is in.
    pub aggregate_type: String,
    /// Which stream of that kind.
    pub aggregate_id: String,
    /// Its place in the stream, from 1.
    pub sequence: u64,
    /// `aggregate.verb_past`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Which shape the payload has.
    pub version: u16,
    /// Microseconds since 1970, UTC, by the server's clock.
    pub recorded_at_us: i64,
    /// What happened, or its hash.
    pub content: Content,
    /// RFC 6962 inclusion proof of leaf `position − 1` in the checkpoint's tree.
    pub inclusion: Vec<Base64<Hash>>,
}

/// Payload and metadata, or what the leaf has of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Content {
    /// As stored: the UTF-8 bytes of these texts are what was hashed.
    Open {
        /// The 16 bytes that both hashes begin with.
        salt: Base64<[u8; 16]>,
        /// JSON.
        payload: String,
        /// JSON: who, why, through what.
        metadata: String,
    },
    /// Not shown.
    Hashes {
        /// SHA-256 of 0x10, salt and payload.
        payload: Base64<Hash>,
        /// SHA-256 of 0x11, salt and metadata.
        metadata: Base64<Hash>,
    },
}

/// Every position from one on that is not an event of the bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Others {
    /// The first position of the range; the last is the checkpoint's size.
    pub from: u64,
    /// The perfect subtrees that leaves `1..from` are made of, largest first.
    pub edge: Vec<Base64<Hash>>,
    /// The RFC 6962 entries, in order, without those of `events`.
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
