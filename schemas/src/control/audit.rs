//! Audit API: events, earlier states, checkpoints and cryptographic proofs.
use chrono::{DateTime, Utc};
use domain::ids::EventId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::{IntoParams, ToSchema};

use crate::moment;

/// Event as stored, with everything that its leaf hash is computed from.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventRecord {
    /// Position in the log, from 1, without gaps.
    pub position: u64,
    /// Id of the event.
    #[schema(value_type = String)]
    pub event_id: EventId,
    /// Stream, `<aggregate type>/<aggregate id>`.
    pub stream: String,
    /// Sequence number in the stream, from 1.
    pub sequence: u64,
    /// Event type, `<aggregate>.<past-tense verb>`, such as `run.approved`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Version of the payload format.
    pub version: String,
    /// Recording time. It never decreases from one event to the next.
    #[serde(with = "moment")]
    pub recorded_at: DateTime<Utc>,
    /// Actor: a principal, a runner, a policy or a timer.
    pub actor: String,
    /// Current display name of the actor. It is not in the log and not in an export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_name: Option<String>,
    /// Payload, byte for byte as hashed. Personal data fields are encrypted.
    #[schema(value_type = Object)]
    pub payload: Box<RawValue>,
    /// Payload with its encrypted fields decrypted, or as `[erased]`. Absent if the payload has no
    /// encrypted fields. Not part of the log or of an export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub readable_payload: Option<Box<RawValue>>,
    /// Metadata, byte for byte as hashed: command, causation, correlation and route.
    #[schema(value_type = Object)]
    pub metadata: Box<RawValue>,
    /// Random salt, hexadecimal. It prevents a guess of the payload from its hash.
    pub salt: String,
    /// Hash of the event's leaf in the tree, hexadecimal.
    pub leaf: String,
    /// Chain hash up to this event, hexadecimal.
    pub chain: String,
}

/// Filters and pagination of events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Position after which the page starts. 0: the beginning of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Stream, `<aggregate type>/<aggregate id>`, or `<aggregate type>` for all streams of a type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Event type, such as `run.approved`, or a prefix such as `run.`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Filter by the actor that caused the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Start time, inclusive.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub since: Option<DateTime<Utc>>,
    /// End time, exclusive.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub until: Option<DateTime<Utc>>,
    /// Maximum number of items, 1 to 200. Default: 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Events of one page.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// Events, by position.
    pub items: Vec<EventRecord>,
    /// Last position that the server examined. To continue, pass it as `after`. Equal to `head` on
    /// the last page.
    pub scanned_through: u64,
    /// Position of the head of the log.
    pub head: u64,
}

/// Signed head of the log's tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    /// C2SP signed note. Store it unchanged.
    pub note: String,
    /// Number of events that it covers.
    pub size: u64,
    /// Ed25519 public key that verifies it, 64 hexadecimal digits. The server's key list contains
    /// it.
    pub key: String,
    /// Replaced keys, which signed earlier checkpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_keys: Vec<String>,
    /// `key` as a C2SP verifier key, `<origin>+<hash>+<base64>`. Store and share this form.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub verifier_key: String,
    /// `former_keys` as C2SP verifier keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_verifier_keys: Vec<String>,
}

/// Selection of an inclusion or consistency proof.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ProofQuery {
    /// Position for an inclusion proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Size of an earlier log, for a consistency proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistent_with: Option<u64>,
}

/// Inclusion or consistency proof, with its checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Proof {
    /// Checkpoint that the proof refers to.
    pub checkpoint: Checkpoint,
    /// Position of the event in an inclusion proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Leaf hash in an inclusion proof, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf: Option<String>,
    /// Size of the earlier log in a consistency proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistent_with: Option<u64>,
    /// RFC 6962 proof hashes, hexadecimal.
    pub hashes: Vec<String>,
}

/// Stream and point in time. At most one of `position` and `time` is allowed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AsOfQuery {
    /// Stream, `<aggregate type>/<aggregate id>`. The name of an install or an app is accepted in
    /// place of its id.
    pub stream: String,
    /// Position as of which to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Time as of which to read.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub time: Option<DateTime<Utc>>,
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// State of an aggregate as of a position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AsOf {
    /// Stream, `<aggregate type>/<aggregate id>`.
    pub stream: String,
    /// Last included position.
    pub position: u64,
    /// Recording time of that position.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub recorded_at: Option<DateTime<Utc>>,
    /// Sequence number of the last event of the stream that the state includes.
    pub sequence: u64,
    /// State of the aggregate.
    pub state: Value,
}

/// Notification of an event, without its payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventNotification {
    /// Position of the event. Also the id of the server-sent event, for `Last-Event-ID`.
    pub position: u64,
    /// Stream, `<aggregate type>/<aggregate id>`.
    pub stream: String,
    /// Event type, `<aggregate>.<past-tense verb>`, such as `run.approved`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Recording time.
    #[serde(with = "moment")]
    pub recorded_at: DateTime<Utc>,
}

/// Start position and filter of change notifications.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChangesQuery {
    /// Position after which to start. Default: the head of the log. The header `Last-Event-ID` has
    /// precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Stream, or an aggregate type for all streams of this type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
}

/// Progress of `POST /v1/audit/doctor`. The last document has `state` `done` or `failed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DoctorProgress {
    /// Check: `log`, `checkpoints`, `events`, the name of a projection, or `all` in the last document.
    pub check: String,
    /// `running`, `checked`, `done` or `failed`.
    pub state: String,
    /// Events that were checked.
    pub events: u64,
    /// Events to check.
    pub total: u64,
    /// Findings of this check; in the last document, all findings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// Reason of a failure; remarks of a check that passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
