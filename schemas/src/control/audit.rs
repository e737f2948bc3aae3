//! Audit API: events, earlier states, checkpoints and cryptographic proofs.
use chrono::{DateTime, Utc};
use domain::ids::EventId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::{IntoParams, ToSchema};

use crate::moment;

/// Stored event, with all inputs of its leaf hash.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventRecord {
    /// Position of the event in the log. Positions start at 1 and have no gaps.
    pub position: u64,
    /// Id of the event: `evt_` and a ULID.
    #[schema(value_type = String)]
    pub event_id: EventId,
    /// Stream, `<aggregate type>/<aggregate id>`, such as `run/run_…`.
    pub stream: String,
    /// Sequence number of the event in its stream, from 1.
    pub sequence: u64,
    /// Event type, `<aggregate>.<past-tense verb>`, such as `run.approved`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Version of the payload format.
    pub version: String,
    /// Time when the server recorded the event. The time never decreases from one event to the
    /// next.
    #[serde(with = "moment")]
    pub recorded_at: DateTime<Utc>,
    /// Actor that caused the event: `prn_…`, `rnr_…`, `policy:<name>`, `timer:<name>` or `system`.
    pub actor: String,
    /// Current display name of the actor. Absent if the actor has none. The log and exports do not
    /// contain the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_name: Option<String>,
    /// Payload, byte for byte as in the leaf hash. Personal data fields are encrypted.
    #[schema(value_type = Object)]
    pub payload: Box<RawValue>,
    /// Payload with decrypted personal data fields. An erased field is `[erased]`. Absent if the
    /// payload has no encrypted fields. The log and exports do not contain this member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub readable_payload: Option<Box<RawValue>>,
    /// Metadata, byte for byte as in the leaf hash: command, causation, correlation and route.
    #[schema(value_type = Object)]
    pub metadata: Box<RawValue>,
    /// Random salt of the leaf hash, hexadecimal. The salt prevents guessing the payload from the
    /// hash.
    pub salt: String,
    /// RFC 6962 leaf hash of the event, 64 hexadecimal digits.
    pub leaf: String,
    /// Hash chain up to and including the event, 64 hexadecimal digits.
    pub chain: String,
}

/// Filters and pagination of events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Position after which the page starts. Default: 0, the beginning of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Filter by stream, `<aggregate type>/<aggregate id>`, or by stream type, `<aggregate type>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Filter by event type, such as `run.approved`, or by prefix, such as `run.`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Filter by actor, such as `prn_…`, `rnr_…` or `policy:auto_approve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Start of the recording time, inclusive.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub since: Option<DateTime<Utc>>,
    /// End of the recording time, exclusive.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub until: Option<DateTime<Utc>>,
    /// Maximum number of items, 1 to 200. Default: 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Events of one page.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// Events that match the filters, sorted by position.
    pub items: Vec<EventRecord>,
    /// Last position that the server compared with the filters. To continue, pass this value as
    /// `after`. Equal to `head` on the last page.
    pub scanned_through: u64,
    /// Position of the head of the log.
    pub head: u64,
}

/// Signed head of the log, with the keys to verify it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    /// Checkpoint as a C2SP signed note. Store the text unchanged.
    pub note: String,
    /// Number of events that the checkpoint covers.
    pub size: u64,
    /// Ed25519 public key that verifies the note, 64 hexadecimal digits. The server's key list
    /// contains the key.
    pub key: String,
    /// Replaced keys, which signed earlier checkpoints, each as 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_keys: Vec<String>,
    /// `key` as a C2SP verifier key, `<origin>+<hash>+<base64>`. Use this form to store or share
    /// the key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub verifier_key: String,
    /// `former_keys` as C2SP verifier keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_verifier_keys: Vec<String>,
}

/// Selection of one proof: an inclusion proof with `position`, or a consistency proof with
/// `consistent_with`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ProofQuery {
    /// Position of the event whose inclusion to prove.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Number of events of an earlier log whose continuation to prove.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistent_with: Option<u64>,
}

/// Inclusion or consistency proof, with its checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Proof {
    /// Checkpoint whose root the proof verifies against.
    pub checkpoint: Checkpoint,
    /// Position of the event. Absent in a consistency proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Leaf hash of the event, 64 hexadecimal digits. Absent in a consistency proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf: Option<String>,
    /// Number of events of the earlier log. Absent in an inclusion proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistent_with: Option<u64>,
    /// RFC 6962 proof hashes, each as 64 hexadecimal digits.
    pub hashes: Vec<String>,
}

/// Stream and point in time. At most one of `position` and `time` is allowed. Default: the head of
/// the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AsOfQuery {
    /// Stream, `<aggregate type>/<aggregate id>`. For an install or an app, its name may replace
    /// the id.
    pub stream: String,
    /// Last position that the response includes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Last recording time that the response includes.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub time: Option<DateTime<Utc>>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// State of an aggregate as of a position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AsOf {
    /// Stream, `<aggregate type>/<aggregate id>`, such as `run/run_…`.
    pub stream: String,
    /// Last log position that the state includes.
    pub position: u64,
    /// Time when the server recorded the event at that position.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub recorded_at: Option<DateTime<Utc>>,
    /// Sequence number of the stream's last event that the state includes.
    pub sequence: u64,
    /// State of the aggregate as a JSON object. The format may change between releases.
    pub state: Value,
}

/// Notification of an event, without its payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventNotification {
    /// Position of the event in the log. Also the id of the server-sent event, for `Last-Event-ID`.
    pub position: u64,
    /// Stream, `<aggregate type>/<aggregate id>`, such as `run/run_…`.
    pub stream: String,
    /// Event type, `<aggregate>.<past-tense verb>`, such as `run.approved`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Time when the server recorded the event.
    #[serde(with = "moment")]
    pub recorded_at: DateTime<Utc>,
}

/// Start position and filter of event notifications.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChangesQuery {
    /// Position after which the stream starts. Default: the head of the log. The header
    /// `Last-Event-ID` has precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Filter by stream, `<aggregate type>/<aggregate id>`, or by stream type, `<aggregate type>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
}

/// Progress message of `POST /v1/audit/doctor`. The last message has the state `done` or `failed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DoctorProgress {
    /// Name of the check: `log`, `checkpoints`, `events`, `erasure`, or a projection or its table.
    /// `all` in the last message.
    pub check: String,
    /// State of the check: `running` or `checked`. In the last message, `done` or `failed`.
    pub state: String,
    /// Number of events that the check has processed.
    pub events: u64,
    /// Number of events to process.
    pub total: u64,
    /// Findings of the check. In the last message, the findings of all checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// Explanation of a failure, or a note about a check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
