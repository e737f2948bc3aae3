//! The log as an auditor reads it: events, states of then, checkpoints and proofs.
use chrono::{DateTime, Utc};
use domain::ids::EventId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::{IntoParams, ToSchema};

use crate::moment;

/// One event, as it was written: with what it takes to compute its leaf again.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventRecord {
    /// Its place in the whole log, from 1, without a gap.
    pub position: u64,
    /// Its id.
    #[schema(value_type = String)]
    pub event_id: EventId,
    /// `<aggregate type>/<aggregate id>`.
    pub stream: String,
    /// Its place in the stream, from 1.
    pub sequence: u64,
    /// `aggregate.verb_past`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The version of the payload's shape.
    pub version: String,
    /// When: never before the event before it.
    #[serde(with = "moment")]
    pub recorded_at: DateTime<Utc>,
    /// Who: a principal, a runner, a policy or a timer.
    pub actor: String,
    /// What they are called today. No part of the log, and not in an export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_name: Option<String>,
    /// What, byte for byte as it is hashed: what is a customer's or a person's is sealed in it.
    #[schema(value_type = Object)]
    pub payload: Box<RawValue>,
    /// Payload with its encrypted fields decrypted, or `[erased]`. Absent: nothing in it is encrypted. Not part of the
    /// log or of an export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub readable_payload: Option<Box<RawValue>>,
    /// Why and through what, byte for byte: command, causation, correlation, route.
    #[schema(value_type = Object)]
    pub metadata: Box<RawValue>,
    /// The random bytes that hide the payload in a proof, hexadecimal.
    pub salt: String,
    /// Its leaf in the tree, hexadecimal.
    pub leaf: String,
    /// The chain up to it, hexadecimal.
    pub chain: String,
}

/// Which events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// After this position. 0: from the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Of this stream: `<aggregate type>/<aggregate id>`, or `<aggregate type>` for all of a type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Of this type: `run.approved`, or `run.` for all of an aggregate.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// By this actor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Not before this moment.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub since: Option<DateTime<Utc>>,
    /// Before this moment.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub until: Option<DateTime<Utc>>,
    /// How many at most: 1 to 200. 50 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Wait (at most 5 s) until the answer includes this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Events of one page.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// In the order of their positions.
    pub items: Vec<EventRecord>,
    /// Last position that was examined: continue with `after` = this. Equal to `head` on the last page.
    pub scanned_through: u64,
    /// The last position of the log.
    pub head: u64,
}

/// A signed head of the log's tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    /// The C2SP signed note, to be kept as it is.
    pub note: String,
    /// How many events it covers.
    pub size: u64,
    /// The Ed25519 public key that verifies it: 64 hexadecimal digits, one of the server's key list.
    pub key: String,
    /// The keys that were replaced: they signed earlier checkpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_keys: Vec<String>,
    /// `key` as a C2SP verifier key, `<origin>+<hash>+<base64>`: the shape to keep and to hand on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub verifier_key: String,
    /// `former_keys` in that shape.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_verifier_keys: Vec<String>,
}

/// Which proof.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ProofQuery {
    /// That this position is in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// That the log of this size is the beginning of today's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistent_with: Option<u64>,
}

/// A proof, and the checkpoint that it leads to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Proof {
    /// The head that it is about.
    pub checkpoint: Checkpoint,
    /// Inclusion: which position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Inclusion: the leaf, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf: Option<String>,
    /// Consistency: which size was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistent_with: Option<u64>,
    /// RFC 6962, hexadecimal.
    pub hashes: Vec<String>,
}

/// Which thing, as of when. At most one of the two.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AsOfQuery {
    /// `<aggregate type>/<aggregate id>`; an install's or an app's name will do instead of its id.
    pub stream: String,
    /// As of this position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// As of this moment.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub time: Option<DateTime<Utc>>,
    /// Wait (at most 5 s) until the answer includes this position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// The state of one thing as of a position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AsOf {
    /// The thing.
    pub stream: String,
    /// The last position that is included.
    pub position: u64,
    /// When that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub recorded_at: Option<DateTime<Utc>>,
    /// How many events of the stream were folded.
    pub sequence: u64,
    /// What they make.
    pub state: Value,
}

/// Something happened; where to read what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// Which position; also the id of the server-sent event, to go on after.
    pub position: u64,
    /// `<aggregate type>/<aggregate id>`.
    pub stream: String,
    /// `aggregate.verb_past`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// When.
    #[serde(with = "moment")]
    pub recorded_at: DateTime<Utc>,
}

/// After which position to listen for changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChangesQuery {
    /// Absent: from now on. `Last-Event-ID` wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Of this stream, or of all of a type.
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
