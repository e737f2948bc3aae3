//! Sessions, one per agent process, and the long poll of a session.
use chrono::{DateTime, Utc};
use domain::ids::{ExecutionId, JobId, SessionId};
use proof::dsse::Envelope;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{FailureReason, JobKind, LogSettings, Outcome};
use crate::moment;

/// Request of `POST /runner/v1/sessions`. A repeated request returns the same session.
///
/// Responses: 200 [`SessionOpened`]; 401 if the signature is wrong or too old; 426 with the
/// supported range in `protocol`.
///
/// The newest session wins. The next call of an older session gets 409 `session_superseded`.
/// `DELETE /runner/v1/sessions/{id}` closes a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OpenSession {
    /// Assertion ([`crate::token::SessionAssertion`]) with the session id, signed by the identity
    /// key.
    pub assertion: String,
    /// Process id of the agent.
    pub pid: u32,
    /// Version of the agent.
    pub version: String,
    /// Protocol versions that the agent supports.
    pub protocol: ProtocolRange,
    /// Kinds of jobs that the runner accepts. An unknown kind of a later version is skipped.
    #[serde(deserialize_with = "known")]
    #[schema(value_type = Vec<String>)]
    pub capabilities: Vec<JobKind>,
    /// Maximum number of concurrent jobs.
    pub slots: u32,
    /// Executions that are not both finished and reported.
    #[serde(default)]
    pub journal: Vec<JournalEntry>,
    /// Latest signed checkpoint that this runner has verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// DSSE envelope around a [`super::JournalHead`]. The server stores the newest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub journal_head: Option<Envelope>,
}

fn known<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<JobKind>, D::Error> {
    let all = Vec::<serde_json::Value>::deserialize(from)?;
    Ok(all.into_iter().filter_map(|kind| serde_json::from_value(kind).ok()).collect())
}

/// Range of protocol versions, both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProtocolRange {
    /// Oldest version.
    pub min: u32,
    /// Newest version.
    pub max: u32,
}

/// Entry of the runner's journal about one claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JournalEntry {
    /// Id of the job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Id of the execution. Absent if the response to the claim never arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub execution: Option<ExecutionId>,
    /// Idempotency key of the claim.
    pub claim_id: String,
    /// State of the execution.
    pub state: ExecutionState,
    /// Bytes of the log on the runner's disk.
    pub log_len: u64,
    /// Result, if the execution has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// State of an execution that a runner can report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionState {
    /// The shim is running.
    Alive,
    /// The shim recorded the result.
    Exited,
    /// The journal shows that no process was started.
    NeverSpawned,
    /// A process was started, and its result is unknown. Also the value for a state that this
    /// version does not know.
    #[serde(other)]
    Unknown,
}

/// Result of a child process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exit {
    /// Outcome of the execution.
    pub outcome: Outcome,
    /// Exit code of the child process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Number of the signal that ended the child process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
}

/// Response to [`OpenSession`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SessionOpened {
    /// Id of the session.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// Generation, greater for every later session of the runner.
    pub generation: u64,
    /// Access token for the header `Authorization: Bearer`, valid while the session is the newest.
    pub access_token: String,
    /// Remaining lifetime of the access token in seconds. `POST /runner/v1/token` returns a new
    /// one.
    pub expires_in_s: u64,
    /// Duration of a long poll in seconds.
    pub wait_s: u64,
    /// Seconds without contact after which executions become disconnected.
    pub lease_s: u64,
    /// Settings for sending logs.
    pub log: LogSettings,
    /// Instruction for each entry of the journal.
    #[serde(default)]
    pub resume: Vec<Resume>,
    /// Time on the server.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
}

/// Instruction for one entry of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Resume {
    /// Id of the job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Id of the execution, if the entry had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub execution: Option<ExecutionId>,
    /// Instruction.
    pub action: ResumeAction,
}

/// Instruction for an execution after a restart of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResumeAction {
    /// The execution is current: continue it.
    Resume,
    /// The execution ended on the runner: send the remaining reports.
    Report,
    /// The runner no longer owns the execution: stop it, keep its files and send no more reports.
    Abandon,
}

/// Request of `POST /runner/v1/poll?wait=50`.
///
/// Responses: 200 [`PollResponse`], or 204 after `wait` seconds without directives; 409
/// `session_superseded`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Poll {
    /// Id of the session.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// Generation of the session.
    pub generation: u64,
    /// Number of further jobs that the runner accepts now. 0 while it is draining or disabled.
    pub free_slots: u32,
    /// Ids of directives that were applied or have no effect.
    #[serde(default)]
    pub ack: Vec<String>,
    /// Running executions.
    #[serde(default)]
    pub running: Vec<Running>,
    /// Disk usage of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<DiskUsage>,
    /// Reason why the customer disabled the runner locally. Absent while it is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<String>,
}

/// Running execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Running {
    /// Id of the job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Id of the execution.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Name of its current phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Bytes of the log on the runner's disk.
    pub log_len: u64,
}

/// Disk usage of a host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiskUsage {
    /// Bytes that are waiting to be sent.
    pub spool_bytes: u64,
    /// Free bytes on the data disk.
    pub disk_free: u64,
}

/// Response to [`Poll`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PollResponse {
    /// Time on the server.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
    /// Directives, in order. The server sends each one again until the runner acknowledges it.
    #[serde(default)]
    pub directives: Vec<SentDirective>,
    /// Remaining lease of each running execution.
    #[serde(default)]
    pub leases: Vec<Lease>,
    /// Timing of the next poll.
    #[serde(default)]
    pub next: PollTiming,
}

/// Directive with its id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SentDirective {
    /// Opaque, unique id for the acknowledgement.
    pub id: String,
    /// Directive to apply.
    #[serde(flatten)]
    pub directive: Directive,
}

/// Message from the server to a runner. Directives are idempotent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Directive {
    /// Offers a job to claim.
    Offer {
        /// Id of the job.
        #[schema(value_type = String)]
        job: JobId,
        /// Kind of the job, one of the session's capabilities.
        kind: JobKind,
        /// Time when the offer expires.
        #[serde(with = "moment")]
        deadline: DateTime<Utc>,
    },
    /// Cancels an execution.
    Cancel {
        /// Id of the job.
        #[schema(value_type = String)]
        job: JobId,
        /// Id of the execution.
        #[schema(value_type = String)]
        execution: ExecutionId,
        /// Reason, for display to a user.
        reason: String,
        /// Seconds between SIGTERM and SIGKILL.
        grace_s: u64,
        /// True to shorten the grace period. Set by a second request.
        #[serde(default)]
        force: bool,
    },
    /// Starts or stops low-latency log delivery for a reader.
    Tail {
        /// Id of the job.
        #[schema(value_type = String)]
        job: JobId,
        /// True if a reader follows the log.
        on: bool,
    },
    /// Stops the acceptance of new jobs.
    Drain {
        /// Reason, for display to a user.
        reason: String,
    },
    /// Resumes the acceptance of new jobs.
    Resume,
    /// Announces a newer agent.
    Upgrade {
        /// Version of the newer agent.
        version: String,
        /// Digest of the newer agent.
        digest: String,
        /// Time by which the upgrade should be done.
        #[serde(with = "moment")]
        by: DateTime<Utc>,
    },
    /// Requests a new identity key.
    Rekey,
    /// Changes settings.
    Config {
        /// Settings for sending logs.
        log: LogSettings,
    },
    /// Unknown directive of a later version. The runner acknowledges and ignores it.
    #[serde(other)]
    Unknown,
}

/// Remaining time of a lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    /// Id of the job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Remaining time in milliseconds.
    pub remaining_ms: u64,
}

/// Timing of the next poll.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PollTiming {
    /// Duration of the next long poll in seconds. Default: the session's `wait_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_s: Option<u64>,
    /// Delay before the next poll in milliseconds.
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
