//! Sessions of a runner, and the long poll of a session.
use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{ExecutionId, JobId, SessionId, ValueId},
    secret::Consumer,
};
use proof::dsse::Envelope;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{FailureReason, InstallPublicKeys, JobKind, LogSettings, Outcome, WrappedSeed};
use crate::moment;

/// Request of `POST /runner/v1/sessions`. A repeated request with the same session id returns the
/// same session.
///
/// Responses: 200 [`SessionOpened`]. 401 for an invalid signature, and for an assertion outside its
/// validity. 403 if the runner was revoked. 409 `rejected` for other keys of the install that belong
/// to no later generation than the recorded ones. 422 for invalid keys. 426 with the supported range
/// in `protocol`.
///
/// The newest session of a runner replaces all earlier ones. The next call of an earlier session
/// gets 409 `session_superseded`. `DELETE /runner/v1/sessions/{id}` closes a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OpenSession {
    /// Assertion ([`crate::token::SessionAssertion`]) with the session id, signed by the current
    /// identity key.
    pub assertion: String,
    /// Process id of the agent.
    pub pid: u32,
    /// Version of `stead-runner`.
    pub version: String,
    /// Protocol versions that the agent supports.
    pub protocol: ProtocolRange,
    /// Kinds of jobs that the runner accepts. The server ignores unknown kinds.
    #[serde(deserialize_with = "known_job_kinds")]
    #[schema(value_type = Vec<String>)]
    pub capabilities: Vec<JobKind>,
    /// Maximum number of concurrent jobs.
    pub slots: u32,
    /// Executions in the runner's journal that are unfinished or not completely reported.
    #[serde(default)]
    pub journal: Vec<JournalEntry>,
    /// Newest signed checkpoint that this runner has verified. Absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// DSSE envelope around a [`super::JournalHead`]. The server stores the newest head of each
    /// journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub journal_head: Option<Envelope>,
    /// Public keys of the install. The server records them if they are the first ones or belong to
    /// a later generation. Absent for a build runner, and for a runner without such keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_keys: Option<InstallPublicKeys>,
    /// Optional features that the runner supports: `secret_references`. The server ignores unknown
    /// ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Digest of the runner's policy file at this moment. Absent if the runner has no policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub policy: Option<Digest>,
    /// All values that the customer set on this host, without the values themselves. The server
    /// forgets others. Absent if the runner cannot read them: then nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer_values: Option<Vec<CustomerValue>>,
    /// All wrapped seeds of this host, which replace those that the runner sent before. Absent if the
    /// runner cannot read them: then nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 10)]
    pub wrapped_seeds: Option<Vec<WrappedSeed>>,
}

/// Sensitive input that the customer set on the runner's host. The value never leaves the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CustomerValue {
    /// Id of the value: `val_` and a ULID.
    #[schema(value_type = String)]
    pub id: ValueId,
    /// Name of the input.
    #[schema(max_length = 128)]
    pub input: String,
    /// Jobs that may use the value.
    pub consumers: Vec<Consumer>,
    /// Time when the customer set the value, by the clock of the host.
    #[serde(with = "moment")]
    pub set_at: DateTime<Utc>,
    /// User of the host who set the value.
    #[schema(max_length = 128)]
    pub set_by: String,
}

fn known_job_kinds<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<JobKind>, D::Error> {
    let all = Vec::<serde_json::Value>::deserialize(from)?;
    Ok(all.into_iter().filter_map(|kind| serde_json::from_value(kind).ok()).collect())
}

/// Range of protocol versions, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProtocolRange {
    /// Oldest supported version.
    pub min: u32,
    /// Newest supported version.
    pub max: u32,
}

/// State of one claim in the runner's journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JournalEntry {
    /// Id of the job: `job_` and a ULID.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Id of the execution: `exe_` and a ULID. Absent if the response to the claim never arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub execution: Option<ExecutionId>,
    /// Random id of the claim, as in the claim request.
    pub claim_id: String,
    /// State of the execution.
    pub state: ExecutionState,
    /// Number of log bytes on the runner's disk.
    pub log_len: u64,
    /// Result of the execution. Absent if the shim has recorded none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// State of an execution in the runner's journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionState {
    /// The shim is running.
    Alive,
    /// The shim has recorded the result.
    Exited,
    /// The runner has started no process.
    NeverSpawned,
    /// The runner has started a process, and the result is unknown. A reader uses this value for
    /// unknown states, too.
    #[serde(other)]
    Unknown,
}

/// Result of an execution in the runner's journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exit {
    /// Outcome of the execution.
    pub outcome: Outcome,
    /// Exit code of the child process. Absent if a signal ended the process or none ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Number of the signal that ended the child process. Absent if no signal did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Stable code of the failure. Absent without a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
}

/// Response to [`OpenSession`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SessionOpened {
    /// Id of the session: `ses_` and a ULID.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// Generation of the session, greater for every later session of the runner.
    pub generation: u64,
    /// Access token for the header `Authorization: Bearer`. A newer session of the runner
    /// invalidates the token.
    pub access_token: String,
    /// Remaining lifetime of the access token in seconds. `POST /runner/v1/token` returns a new
    /// one.
    pub expires_in_s: u64,
    /// Ids of the customer's values that are inputs of the install now. The runner reports the
    /// others again. Absent if the request had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub recorded_values: Option<Vec<ValueId>>,
    /// Maximum duration of a long poll in seconds.
    pub wait_s: u64,
    /// Time without contact after which an execution counts as disconnected, in seconds.
    pub lease_s: u64,
    /// Settings for uploading logs.
    pub log: LogSettings,
    /// Instructions, one for each entry of `journal`.
    #[serde(default)]
    pub resume: Vec<Resume>,
    /// Current time of the server's clock.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
}

/// Instruction for one claim in the runner's journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Resume {
    /// Id of the job: `job_` and a ULID.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Id of the execution: `exe_` and a ULID. Absent if the journal entry has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub execution: Option<ExecutionId>,
    /// Instruction to the runner.
    pub action: ResumeAction,
}

/// Instruction for an execution of an earlier session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResumeAction {
    /// Continue the execution, which still holds its job.
    Resume,
    /// Send the remaining reports of the execution, which has ended on the runner.
    Report,
    /// Stop the execution, which no longer holds its job. Keep its files and send no more reports.
    Abandon,
}

/// Request of `POST /runner/v1/poll?wait=50`, a long poll.
///
/// Responses: 200 [`PollResponse`], or 204 after `wait` seconds without directives. 409
/// `session_superseded`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Poll {
    /// Id of the session: `ses_` and a ULID.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// Generation of the session, as in [`SessionOpened`].
    pub generation: u64,
    /// Number of further jobs that the runner accepts now. 0 while the runner is draining or
    /// disabled.
    pub free_slots: u32,
    /// Ids of directives that the runner has applied or ignored.
    #[serde(default)]
    pub ack: Vec<String>,
    /// Executions that are in progress on the runner.
    #[serde(default)]
    pub running: Vec<Running>,
    /// Disk usage of the host. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<DiskUsage>,
    /// Reason for which the customer disabled the runner on its host. Absent while the runner is
    /// enabled there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<String>,
}

/// Execution that is in progress on the runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Running {
    /// Id of the job: `job_` and a ULID.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Id of the execution: `exe_` and a ULID.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Name of the current phase. Absent before the first phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Number of log bytes on the runner's disk.
    pub log_len: u64,
}

/// Disk usage of the runner's host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiskUsage {
    /// Number of log bytes that the runner has not uploaded yet.
    pub spool_bytes: u64,
    /// Number of free bytes on the disk of the data directory.
    pub disk_free: u64,
}

/// Response to [`Poll`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PollResponse {
    /// Current time of the server's clock.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
    /// Directives in their order. The server repeats a directive until the runner acknowledges it.
    #[serde(default)]
    pub directives: Vec<SentDirective>,
    /// Remaining time of the lease of each execution in progress.
    #[serde(default)]
    pub leases: Vec<Lease>,
    /// Timing of the next poll.
    #[serde(default)]
    pub next: PollTiming,
}

/// Directive with an id for its acknowledgement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SentDirective {
    /// Opaque unique id, which the runner sends in `ack`.
    pub id: String,
    /// Type and fields of the directive.
    #[serde(flatten)]
    pub directive: Directive,
}

/// Message from the server to a runner. Directives are idempotent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Directive {
    /// Offers a job, which the runner may claim.
    Offer {
        /// Id of the job: `job_` and a ULID.
        #[schema(value_type = String)]
        job: JobId,
        /// Kind of the job, one of the capabilities of the session.
        kind: JobKind,
        /// Time from which the offer is invalid.
        #[serde(with = "moment")]
        deadline: DateTime<Utc>,
    },
    /// Requests the cancellation of an execution.
    Cancel {
        /// Id of the job: `job_` and a ULID.
        #[schema(value_type = String)]
        job: JobId,
        /// Id of the execution: `exe_` and a ULID.
        #[schema(value_type = String)]
        execution: ExecutionId,
        /// Reason for the request, for users.
        reason: String,
        /// Grace period between SIGTERM and SIGKILL, in seconds.
        grace_s: u64,
        /// True if a forced request has shortened the grace period.
        #[serde(default)]
        force: bool,
    },
    /// Starts or ends log uploads with low latency, for readers that follow a log.
    Tail {
        /// Id of the job: `job_` and a ULID.
        #[schema(value_type = String)]
        job: JobId,
        /// True while a reader follows the log.
        on: bool,
    },
    /// Requests that the runner accepts no new jobs.
    Drain {
        /// Reason for the request, for users.
        reason: String,
    },
    /// Ends a drain, so that the runner accepts new jobs.
    Resume,
    /// Announces a newer version of `stead-runner`.
    Upgrade {
        /// Newer version.
        version: String,
        /// Digest of the executable of the newer version.
        digest: String,
        /// Time by which the operator should upgrade the runner.
        #[serde(with = "moment")]
        by: DateTime<Utc>,
    },
    /// Requests that the runner replaces its identity key.
    Rekey,
    /// Changes settings of the session.
    Config {
        /// Settings for uploading logs.
        log: LogSettings,
    },
    /// Unknown directive of a later version, which the runner acknowledges and ignores.
    #[serde(other)]
    Unknown,
}

/// Remaining time of the lease of one execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    /// Id of the job: `job_` and a ULID.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Remaining time of the lease in milliseconds.
    pub remaining_ms: u64,
}

/// Timing of the next poll.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PollTiming {
    /// Duration of the next long poll in seconds. Default: `wait_s` of the session.
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
    fn an_unknown_directive_deserializes() {
        let text = r#"{"server_time":"2026-01-01T00:00:00Z","directives":[{"id":"1","type":"dance","to":7},
            {"id":"2","type":"resume"},{"id":"3","type":"drain","reason":"r","more":true}],"new":1}"#;
        let response: PollResponse = serde_json::from_str(text).unwrap();
        let read: Vec<_> = response.directives.into_iter().map(|sent| sent.directive).collect();
        let drain = Directive::Drain { reason: "r".into() };
        assert_eq!(read, [Directive::Unknown, Directive::Resume, drain]);
    }
}
