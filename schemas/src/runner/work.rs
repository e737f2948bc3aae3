//! Claims and reports of a runner, from the claim of a job to its result.
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::ids::{ExecutionId, SessionId};
use proof::dsse::Envelope;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Artifact, FailureReason, LogSettings, PlanReport, RefusedBy};
use crate::{manifest::StateVersion, moment};

/// Request of `PUT /runner/v1/jobs/{job}/claim`. A repeated request with the same session and
/// `claim_id` returns the same claim.
///
/// Responses: 200 [`Claimed`]; 409 `claimed_by_other` or `session_superseded`; 410 `cancelled` or
/// `expired`; 403 `not_offered`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Claim {
    /// Id of the session.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// Generation of the session.
    pub generation: u64,
    /// Random id. The runner writes it to its journal before the request.
    pub claim_id: String,
    /// Latest signed checkpoint that this runner has verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// Claimed job, with the proof of the claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Claimed {
    /// Id of the execution, the fencing token of every later call.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Seconds without contact after which the execution becomes disconnected.
    pub lease_s: u64,
    /// Deadline, as in the grant.
    #[serde(with = "moment")]
    pub deadline: DateTime<Utc>,
    /// Time on the server. The runner measures the deadline from it.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
    /// DSSE envelope around a [`crate::manifest::Manifest`].
    #[schema(value_type = Object)]
    pub manifest: Envelope,
    /// DSSE envelope around a [`crate::manifest::Grant`].
    #[schema(value_type = Object)]
    pub grant: Envelope,
    /// Token for the registry and for tools that cannot send the `Execution` header.
    pub job_token: String,
    /// Settings for sending the log.
    pub log: LogSettings,
    /// Signed checkpoint that includes the claim.
    pub checkpoint: String,
    /// Inclusion proof of the claim in the checkpoint's log.
    pub inclusion: Inclusion,
    /// Consistency proof from the runner's checkpoint to this one. Absent if the runner had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
}

/// Proof that `job.claimed` is at a position of the checkpoint's tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Inclusion {
    /// Position of the event. Its leaf index is one less.
    pub position: u64,
    /// Canonical RFC 6962 entry of the leaf, hexadecimal.
    pub entry: String,
    /// RFC 6962 audit path from the leaf upwards, each hash as 64 hexadecimal digits.
    pub path: Vec<String>,
}

/// Proof that the tree of a checkpoint is a continuation of an older one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Consistency {
    /// Size of the older tree.
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
    /// Id of the execution.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Sequence number of the report, from 1, without gaps.
    pub seq: u64,
    /// Type and payload of the report.
    #[serde(flatten)]
    pub body: ReportBody,
    /// Bytes of the log on the runner's disk at the time of the report.
    pub log_len: u64,
    /// Signature of the runner, in a report that ends the job. Absent from runners that do not sign
    /// results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<SignedEnd>,
}

/// Documents that a runner signs at the end of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SignedEnd {
    /// DSSE envelope around a [`super::Statement`].
    #[schema(value_type = Object)]
    pub statement: Envelope,
    /// DSSE envelope around a [`super::JournalHead`] of a journal that contains the statement's
    /// digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub journal_head: Option<Envelope>,
}

/// Maximum size of a job's outputs as JSON, names and values together, in bytes. It is half of an
/// event's limit, because the outputs are stored again with their component. The runner and the
/// server drop the rest.
pub const OUTPUTS_BYTES: usize = 32 * 1024;

/// Body of a report. Content over 64 KiB is uploaded to `PUT /runner/v1/blobs/{sha256}` first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", content = "payload", rename_all = "snake_case")]
pub enum ReportBody {
    /// The plugin has started.
    Started {},
    /// The plugin has entered a phase.
    Phase {
        /// Name of the phase.
        name: String,
    },
    /// A plan was made.
    Plan(PlanReport),
    /// The component has outputs.
    Outputs {
        /// Outputs by name, redacted.
        #[schema(value_type = Object)]
        outputs: BTreeMap<String, Value>,
    },
    /// State that a plan was made from, or that an apply wrote.
    State(StateVersion),
    /// An artifact was pushed.
    Artifact(Artifact),
    /// The runner refuses the job.
    Refused {
        /// Source of the refusal.
        by: RefusedBy,
        /// Name of the violated rule.
        rule: String,
        /// Explanation for a user.
        detail: String,
    },
    /// The runner is cancelling the execution.
    CancelProgress {
        /// Last signal that was sent.
        signal: String,
    },
    /// The execution has ended.
    Finished(Finished),
}

/// Final report of an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Finished {
    /// Outcome of the execution.
    pub outcome: Outcome,
    /// Exit code of the child process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the child process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// Explanation for a user.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// True if a cancel required SIGKILL.
    #[serde(default)]
    pub forced: bool,
    /// Size of the complete log in bytes.
    pub log_len: u64,
    /// SHA-256 of the complete log, 64 hexadecimal digits.
    pub log_sha256: String,
    /// Number of bytes that were omitted from the middle of the log.
    #[serde(default)]
    pub omitted: u64,
    /// Processes of the job that the runner could not end, at most [`NOT_ENDED`], each as `name
    /// (pid 7)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ended: Vec<String>,
}

/// Maximum number of entries in [`Finished::not_ended`]. If there are more processes, the last
/// entry gives the number of the others.
pub const NOT_ENDED: usize = 16;

/// Outcome of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The child process succeeded.
    Succeeded,
    /// The child process failed, or could not run.
    Failed,
    /// The execution was stopped by a cancel.
    Cancelled,
}

impl Outcome {
    /// Returns the value on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
        }
    }
}

/// Response to a report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReportResponse {
    /// State of the job.
    #[serde(default)]
    pub job_state: String,
    /// Log bytes that the server has stored durably. Present only while the server waits for the
    /// rest of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_bytes: Option<u64>,
    /// Cancel request for this execution, if one is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<PendingCancel>,
}

/// Cancel request for an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PendingCancel {
    /// Reason, for display to a user.
    pub reason: String,
    /// Seconds between SIGTERM and SIGKILL.
    pub grace_s: u64,
    /// True to shorten the grace period. Set by a second request.
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
        let report = Report { execution, seq: 2, body, log_len: 7, end: None };
        let text = serde_json::to_string(&report).unwrap();
        let kept = r#"{"execution":"exe_01ARZ3NDEKTSV4RRFFQ69G5FAV","seq":2,"type":"phase","payload":{"name":"init"},"log_len":7}"#;
        assert_eq!(text, kept);
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        let started = Report { body: ReportBody::Started {}, ..report };
        let text = serde_json::to_string(&started).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), started);
    }
}
