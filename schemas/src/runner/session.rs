//! One life of an agent process, and its one idle call.
use chrono::{DateTime, Utc};
use domain::ids::{ExecutionId, JobId, SessionId};
use proof::dsse::Envelope;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{FailureReason, JobKind, LogSettings, Outcome};
use crate::moment;

/// `POST /runner/v1/sessions`: 200 [`SessionOpened`], also when it is asked again; 401 not signed by the
/// runner's key, or too old; 426 with `protocol`, the range that the server speaks. The newest session wins; the former one gets 409 `session_superseded` on its next call. `DELETE /runner/v1/sessions/{id}` closes one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OpenSession {
    /// A [`crate::token::Opening`], signed by the identity key: it names the session.
    pub assertion: String,
    /// The agent's process.
    pub pid: u32,
    /// The agent's version.
    pub version: String,
    /// What the agent speaks.
    pub protocol: ProtocolRange,
    /// The kinds that it takes. What a later version of the runner takes besides is left out here.
    #[serde(deserialize_with = "known")]
    #[schema(value_type = Vec<String>)]
    pub capabilities: Vec<JobKind>,
    /// How many jobs at once.
    pub slots: u32,
    /// Every execution that is not done and reported.
    #[serde(default)]
    pub journal: Vec<JournalEntry>,
    /// The last signed checkpoint that this runner has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// DSSE around a [`super::JournalHead`]: the server keeps the newest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub journal_head: Option<Envelope>,
}

fn known<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<JobKind>, D::Error> {
    let all = Vec::<serde_json::Value>::deserialize(from)?;
    Ok(all.into_iter().filter_map(|kind| serde_json::from_value(kind).ok()).collect())
}

/// Versions of the protocol, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProtocolRange {
    /// The oldest.
    pub min: u32,
    /// The newest.
    pub max: u32,
}

/// What the journal knows of one claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JournalEntry {
    /// The job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// The execution; absent when the claim's answer never arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub execution: Option<ExecutionId>,
    /// The claim's key.
    pub claim_id: String,
    /// What became of it.
    pub state: ExecutionState,
    /// Log bytes on the runner's disk.
    pub log_len: u64,
    /// How it ended, when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// What a runner can say of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionState {
    /// The shim lives.
    Alive,
    /// The shim wrote how it ended.
    Exited,
    /// The journal proves that nothing was ever started.
    NeverSpawned,
    /// It was started, and nobody can say how it ended; or this version cannot read what is said of it.
    #[serde(other)]
    Unknown,
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exit {
    /// In one word.
    pub outcome: Outcome,
    /// The child's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why, when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
}

/// The answer to [`OpenSession`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SessionOpened {
    /// This life's name.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// Grows with every session of the runner.
    pub generation: u64,
    /// For `Authorization: Bearer`, as long as this session is the newest.
    pub access_token: String,
    /// Seconds from now until it ends; `POST /runner/v1/token` gives another one.
    pub expires_in_s: u64,
    /// Seconds to park an idle poll.
    pub wait_s: u64,
    /// Seconds of silence after which executions count as disconnected.
    pub lease_s: u64,
    /// How to send logs.
    pub log: LogSettings,
    /// What to do with each entry of the journal.
    #[serde(default)]
    pub resume: Vec<Resume>,
    /// The server's clock.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
}

/// What to do with one entry of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Resume {
    /// The job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// The execution, when the entry named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub execution: Option<ExecutionId>,
    /// What.
    pub action: ResumeAction,
}

/// What to do with an execution after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResumeAction {
    /// It is still the current one: go on.
    Resume,
    /// It ended here: report what is left to report.
    Report,
    /// It is no longer ours: stop it, keep its files, say nothing more.
    Abandon,
}

/// `POST /runner/v1/poll?wait=50`: 200 [`PollResponse`], or 204 after `wait` seconds without news; 409
/// `session_superseded`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Poll {
    /// The session.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// Its generation.
    pub generation: u64,
    /// How many more jobs it would take now; 0 while draining or disabled.
    pub free_slots: u32,
    /// Directives that were carried out or are not needed.
    #[serde(default)]
    pub ack: Vec<String>,
    /// What runs now.
    #[serde(default)]
    pub running: Vec<Running>,
    /// How full the host is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// Why the customer switched the runner off on the spot; absent: it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<String>,
}

/// One execution that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Running {
    /// The job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// The execution.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// The phase it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Log bytes on the runner's disk.
    pub log_len: u64,
}

/// How full the host is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pressure {
    /// Bytes that wait to be sent.
    pub spool_bytes: u64,
    /// Bytes that are free on the data disk.
    pub disk_free: u64,
}

/// What a poll brings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PollResponse {
    /// The server's clock.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
    /// In order; sent again until acknowledged.
    #[serde(default)]
    pub directives: Vec<SentDirective>,
    /// What is left of each running execution's lease.
    #[serde(default)]
    pub leases: Vec<Lease>,
    /// When to come back.
    #[serde(default)]
    pub next: Next,
}

/// A directive and its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SentDirective {
    /// Opaque and unique; to be acknowledged.
    pub id: String,
    /// What is wanted.
    #[serde(flatten)]
    pub directive: Directive,
}

/// What the server wants of a runner. Applying one twice is harmless.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Directive {
    /// There is a job to claim.
    Offer {
        /// The job.
        #[schema(value_type = String)]
        job: JobId,
        /// Its kind, one of the session's capabilities.
        kind: JobKind,
        /// Until when the offer stands.
        #[serde(with = "moment")]
        deadline: DateTime<Utc>,
    },
    /// Stop this execution.
    Cancel {
        /// The job.
        #[schema(value_type = String)]
        job: JobId,
        /// The execution.
        #[schema(value_type = String)]
        execution: ExecutionId,
        /// Why, for people.
        reason: String,
        /// Seconds from SIGTERM to SIGKILL.
        grace_s: u64,
        /// A second request: shorten the grace.
        #[serde(default)]
        force: bool,
    },
    /// Somebody reads along, or no longer does.
    Tail {
        /// The job.
        #[schema(value_type = String)]
        job: JobId,
        /// Whether.
        on: bool,
    },
    /// Take nothing new.
    Drain {
        /// Why, for people.
        reason: String,
    },
    /// Take new work again.
    Resume,
    /// A newer agent is there.
    Upgrade {
        /// Its version.
        version: String,
        /// Its digest.
        digest: String,
        /// Until when it should be done.
        #[serde(with = "moment")]
        by: DateTime<Utc>,
    },
    /// Make a new identity key.
    Rekey,
    /// Other settings from now on.
    Config {
        /// How to send logs.
        log: LogSettings,
    },
    /// A directive of a later version: acknowledged and left alone.
    #[serde(other)]
    Unknown,
}

/// What is left of a lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    /// The job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Milliseconds.
    pub remaining_ms: u64,
}

/// When to come back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Next {
    /// Seconds to park the next poll; absent: as the session said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_s: Option<u64>,
    /// Milliseconds to stay away before it.
    #[serde(default)]
    pub delay_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directive_of_a_later_version_is_read_and_left_alone() {
        let text = r#"{"server_time":"2026-01-01T00:00:00Z","directives":[{"id":"1","type":"dance","to":7},
            {"id":"2","type":"resume"},{"id":"3","type":"drain","reason":"r","more":true}],"new":1}"#;
        let answer: PollResponse = serde_json::from_str(text).unwrap();
        let read: Vec<_> = answer.directives.into_iter().map(|sent| sent.directive).collect();
        let drain = Directive::Drain { reason: "r".into() };
        assert_eq!(read, [Directive::Unknown, Directive::Resume, drain]);
    }
}
