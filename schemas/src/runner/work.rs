//! Claims of jobs, and reports about executions.
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{ExecutionId, SessionId},
    isolation::Isolation,
};
use proof::dsse::Envelope;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Artifact, Check, FailureReason, LogSettings, PlanReport, RefusedBy};
use crate::{manifest::StateVersion, moment, secret::EncryptedValue};

/// Request of `PUT /runner/v1/jobs/{job}/claim`. A repeated request with the same session and
/// `claim_id` returns the same claim.
///
/// Responses: 200 [`Claimed`]. 403 `not_offered`. 409 `claimed_by_other` or `session_superseded`.
/// 410 `cancelled` or `expired`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Claim {
    /// Id of the session: `ses_` and a ULID.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// Generation of the session, as in [`super::SessionOpened`].
    pub generation: u64,
    /// Random id of the claim. The runner writes the id to its journal before the request.
    pub claim_id: String,
    /// Newest signed checkpoint that this runner has verified. Absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// Claimed job, with proofs that the log contains the claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Claimed {
    /// Id of the execution: `exe_` and a ULID. The id is the fencing token of every later call.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Time without contact after which the execution counts as disconnected, in seconds.
    pub lease_s: u64,
    /// Time by which the execution must end, as in the grant.
    #[serde(with = "moment")]
    pub deadline: DateTime<Utc>,
    /// Current time of the server's clock. The runner measures the remaining time to the deadline
    /// from this time.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
    /// DSSE envelope around a [`crate::manifest::Manifest`].
    #[schema(value_type = Object)]
    pub manifest: Envelope,
    /// DSSE envelope around a [`crate::manifest::Grant`].
    #[schema(value_type = Object)]
    pub grant: Envelope,
    /// Job token, for the registry and for tools that cannot send the header `Execution`.
    pub job_token: String,
    /// Settings for uploading the log.
    pub log: LogSettings,
    /// Signed checkpoint of a log that contains the claim, as a C2SP signed note.
    pub checkpoint: String,
    /// Inclusion proof of the claim in the tree of `checkpoint`.
    pub inclusion: Inclusion,
    /// Consistency proof from the runner's checkpoint to `checkpoint`. Absent if the request had no
    /// checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
    /// Sensitive values to which the manifest refers, as far as the server has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<EncryptedValue>,
}

/// Proof that the event `job.claimed` is at a position of the checkpoint's tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Inclusion {
    /// Log position of the event. The index of its leaf is one less.
    pub position: u64,
    /// Canonical RFC 6962 entry of the leaf, hexadecimal.
    pub entry: String,
    /// RFC 6962 audit path from the leaf upwards, each hash as 64 hexadecimal digits.
    pub path: Vec<String>,
}

/// Proof that the tree of a checkpoint is a continuation of an older tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Consistency {
    /// Number of leaves of the older tree.
    pub from: u64,
    /// RFC 6962 consistency path, each hash as 64 hexadecimal digits.
    pub path: Vec<String>,
}

/// Request of `POST /runner/v1/jobs/{job}/events`.
///
/// Responses: 200 [`ReportResponse`], also for a repeated report. 202 while the log is incomplete.
/// 409 `seq_conflict`, or `seq_gap` with `expected`. 412 `fenced` with `job_state`, or
/// `log_mismatch`. 422 `statement_invalid`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// Id of the execution: `exe_` and a ULID.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Sequence number of the report. Numbers start at 1 in each execution and have no gaps.
    pub seq: u64,
    /// Type and payload of the report.
    #[serde(flatten)]
    pub body: ReportBody,
    /// Number of log bytes on the runner's disk at the time of the report.
    pub log_len: u64,
    /// Signed documents of a report that ends the job. Absent in other reports, and from runners
    /// that do not sign results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<SignedEnd>,
    /// Details of a plan. Absent in other reports, and for plans without details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<SaltedDetails>,
}

/// Details of a plan, with the salt of their digest. The server stores both encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SaltedDetails {
    /// Salt from `proof::plan::salt`: `sha256:` and 64 hexadecimal digits.
    #[schema(value_type = String)]
    pub salt: Digest,
    /// RFC 8785 JSON of [`crate::plugin::PlanDetails`], at most [`DETAILS_BYTES`].
    pub content: String,
}

/// Maximum size of a plan's details in bytes, as RFC 8785 JSON.
pub const DETAILS_BYTES: usize = 1 << 20;

impl SaltedDetails {
    /// Returns the digest that the plan digest covers.
    pub fn digest(&self) -> Digest {
        proof::plan::details(&self.salt.bytes(), self.content.as_bytes()).into()
    }
}

/// Documents that a runner signs at the end of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SignedEnd {
    /// DSSE envelope around a [`super::Statement`].
    #[schema(value_type = Object)]
    pub statement: Envelope,
    /// DSSE envelope around a [`super::JournalHead`]. The journal contains the digest of the
    /// statement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub journal_head: Option<Envelope>,
}

/// Maximum size of a job's outputs in bytes: names, and values as JSON. Runner and server drop the
/// largest outputs above this limit. The limit is half of an event's limit, because a second event
/// stores the outputs with their component.
pub const OUTPUTS_BYTES: usize = 32 * 1024;

/// Maximum size of all ciphertexts of a report in bytes.
pub const VALUES_BYTES: usize = 512 * 1024;

/// Type and payload of a report. The runner first uploads content of more than 64 KiB to `PUT
/// /runner/v1/blobs/{sha256}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", content = "payload", rename_all = "snake_case")]
pub enum ReportBody {
    /// The plugin starts its work.
    Started {
        /// Isolation of the execution. Absent from runners that do not report it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        isolation: Option<Isolation>,
    },
    /// The plugin enters a phase of its work. Phases are for display only.
    Phase {
        /// Name of the phase.
        name: String,
    },
    /// Changes that an apply would make.
    Plan(PlanReport),
    /// Outputs that other components may read.
    Outputs {
        /// Output values by name, without secrets.
        #[schema(value_type = Object)]
        outputs: BTreeMap<String, Value>,
        /// Sensitive outputs, encrypted and signed by the install. In `outputs`, each is
        /// `encrypted:` and its id.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        values: Vec<EncryptedValue>,
    },
    /// Version of the state that a plan read or an apply wrote.
    State(StateVersion),
    /// Artifact that a build pushed to the registry.
    Artifact(Artifact),
    /// Results of the checks of a preflight.
    Checks {
        /// Failed checks come first, then deferred ones. The server drops the last ones above the
        /// limits of an event: 256 checks and 32 KiB.
        checks: Vec<Check>,
    },
    /// The runner refuses the job, which ends the execution.
    Refused {
        /// Check that caused the refusal.
        by: RefusedBy,
        /// Name of the violated rule.
        rule: String,
        /// Explanation of the refusal for users.
        detail: String,
    },
    /// The runner is cancelling the execution. For display only.
    CancelProgress {
        /// Name of the last signal that the runner sent.
        signal: String,
    },
    /// The execution ended with this result.
    Finished(Finished),
}

/// Result of an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Finished {
    /// Outcome of the execution.
    pub outcome: Outcome,
    /// Exit code of the child process. Absent if a signal ended the process or none ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the child process. Absent if no signal did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Stable code of the failure. Absent without a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// Explanation of a failure for users. Empty without a failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// True if the child process did not stop after SIGTERM and the runner sent SIGKILL.
    #[serde(default)]
    pub forced: bool,
    /// Size of the complete log in bytes.
    pub log_len: u64,
    /// SHA-256 of the complete log, 64 hexadecimal digits.
    pub log_sha256: String,
    /// Number of output bytes that the shim omitted from the middle of the log.
    #[serde(default)]
    pub omitted: u64,
    /// Processes of the job that the runner could not end, at most [`NOT_ENDED`], each as `name
    /// (pid 7)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ended: Vec<String>,
}

/// Maximum number of entries in [`Finished::not_ended`]. If more processes remain, the last entry
/// is the number of the unlisted processes.
pub const NOT_ENDED: usize = 16;

/// Outcome of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The work succeeded.
    Succeeded,
    /// The work failed or could not start.
    Failed,
    /// The runner stopped the execution because of a cancel request.
    Cancelled,
}

impl Outcome {
    /// Returns the name of the outcome in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
        }
    }
}

/// Response to a [`Report`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReportResponse {
    /// State of the job after the report, for example `running`.
    #[serde(default)]
    pub job_state: String,
    /// Number of log bytes that the server has stored durably. Present only while the server waits
    /// for the rest of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_bytes: Option<u64>,
    /// Pending cancel request for the execution. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<PendingCancel>,
}

/// Pending cancel request for an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PendingCancel {
    /// Reason for the cancel request, for users.
    pub reason: String,
    /// Grace period between SIGTERM and SIGKILL, in seconds.
    pub grace_s: u64,
    /// True if a forced request has shortened the grace period.
    #[serde(default)]
    pub force: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_type_and_a_payload() {
        let execution = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let body = ReportBody::Phase { name: "init".into() };
        let report = Report { execution, seq: 2, body, log_len: 7, end: None, details: None };
        let text = serde_json::to_string(&report).unwrap();
        let expected = r#"{"execution":"exe_01ARZ3NDEKTSV4RRFFQ69G5FAV","seq":2,"type":"phase","payload":{"name":"init"},"log_len":7}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        let started = Report { body: ReportBody::Started { isolation: None }, ..report };
        let text = serde_json::to_string(&started).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), started);
    }
}
