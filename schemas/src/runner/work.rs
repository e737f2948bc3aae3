//! From the claim to the last word: what a runner gets and what it reports.
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{ExecutionId, SessionId},
};
use proof::dsse::Envelope;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{FailureReason, LogSettings};
use crate::{manifest::StateVersion, moment};

/// `PUT /runner/v1/jobs/{job}/claim`: 200 [`Claimed`], the same for the same session and `claim_id`; 409
/// `claimed_by_other` or `session_superseded`; 410 `cancelled` or `expired`; 403 `not_offered`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Claim {
    /// The session.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// Its generation.
    pub generation: u64,
    /// Random, in the journal before it is sent.
    pub claim_id: String,
    /// The last signed checkpoint that this runner has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// A job, and the proof that it is ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Claimed {
    /// The fencing token of everything that follows.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// From 1.
    pub attempt: u32,
    /// Seconds of silence after which it counts as disconnected.
    pub lease_s: u64,
    /// The deadline, as in the grant.
    #[serde(with = "moment")]
    pub deadline: DateTime<Utc>,
    /// The server's clock, from which the deadline is counted down.
    #[serde(with = "moment")]
    pub server_time: DateTime<Utc>,
    /// DSSE around a [`crate::manifest::Manifest`].
    #[schema(value_type = Object)]
    pub manifest: Envelope,
    /// DSSE around a [`crate::manifest::Grant`].
    #[schema(value_type = Object)]
    pub grant: Envelope,
    /// For the registry and for tools that cannot send our header.
    pub job_token: String,
    /// How to send the log.
    pub log: LogSettings,
    /// A signed checkpoint that includes the claim.
    pub checkpoint: String,
    /// That the claim is in the checkpoint's log.
    pub inclusion: Inclusion,
    /// That this log still holds all of the log that the runner saw; absent when it has seen none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
}

/// Proof that `job.claimed` stands at a position of the checkpoint's tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Inclusion {
    /// The position; leaf index is one less.
    pub position: u64,
    /// The leaf's entry (`canonical` of event-log §7), hexadecimal.
    pub entry: String,
    /// RFC 6962 audit path, each 64 hexadecimal digits, from the leaf upwards.
    pub path: Vec<String>,
}

/// Proof that a checkpoint's tree continues an older one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Consistency {
    /// Size of the older tree.
    pub from: u64,
    /// RFC 6962 consistency path, each 64 hexadecimal digits.
    pub path: Vec<String>,
}

/// `POST /runner/v1/jobs/{job}/events`: 200 [`ReportResponse`], also for a repeated one; 202 while the log is
/// incomplete; 409 `seq_conflict`, or `seq_gap` with `expected`; 412 `fenced` with `job_state`, or
/// `log_mismatch`; 422 `statement_invalid`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// Whose report.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// From 1, without gaps.
    pub seq: u64,
    /// What happened: `type` and `payload`.
    #[serde(flatten)]
    pub body: ReportBody,
    /// Log bytes on the runner's disk at that moment.
    pub log_len: u64,
    /// The runner's signature, with a report that ends the job. Runners of before send none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<SignedEnd>,
}

/// What a runner signs when a job is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SignedEnd {
    /// DSSE around a [`super::Statement`].
    #[schema(value_type = Object)]
    pub statement: Envelope,
    /// DSSE around a [`super::JournalHead`] of a journal that has the statement's digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub journal_head: Option<Envelope>,
}

/// The most bytes of a job's outputs together, names and values as JSON: half of what an event holds, for they are
/// written once more beside what they are of. The runner withholds the rest, and so does the server.
pub const OUTPUTS_BYTES: usize = 32 * 1024;

/// What can be reported. Over 64 KiB goes to `PUT /runner/v1/blobs/{sha256}` first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", content = "payload", rename_all = "snake_case")]
pub enum ReportBody {
    /// The plugin runs.
    Started {},
    /// It entered a phase.
    Phase {
        /// Its name.
        name: String,
    },
    /// A plan was made.
    Plan(PlanReport),
    /// The component's outputs.
    Outputs {
        /// By name, redacted.
        #[schema(value_type = Object)]
        outputs: BTreeMap<String, Value>,
    },
    /// State that a plan was made from, or that an apply wrote.
    State(StateVersion),
    /// An artifact was pushed.
    Artifact(ArtifactReport),
    /// The runner does not do this job.
    Refused {
        /// Who refused.
        by: RefusedBy,
        /// The rule, in one word.
        rule: String,
        /// For people.
        detail: String,
    },
    /// A cancel is on its way.
    CancelProgress {
        /// The signal that was sent last.
        signal: String,
    },
    /// The last word.
    Finished(Finished),
}

/// Who refused a job on the runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefusedBy {
    /// The customer's policy file or switch.
    CustomerPolicy,
    /// A signature, a digest or a proof.
    Verification,
    /// This runner cannot: no such plugin, no such tool.
    Capability,
    /// The customer's veto hook.
    Veto,
}

/// A plan that was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanReport {
    /// What is approved: see `proof::plan`.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// The plan file, which stays on the runner.
    #[schema(value_type = String)]
    pub file: Digest,
    /// The redacted summary, a blob of RFC 8785 JSON.
    #[schema(value_type = String)]
    pub summary: Digest,
    /// Nothing would change.
    pub noop: bool,
    /// Things that would be made.
    pub add: u64,
    /// Things that would be changed.
    pub change: u64,
    /// Things that would be destroyed.
    pub destroy: u64,
    /// The tool and its version.
    pub tool: String,
    /// The identity key's signature of `proof::plan::statement`, base64 as in a DSSE envelope.
    pub signature: String,
}

/// An artifact that was pushed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactReport {
    /// `<app>/<component>`.
    pub repository: String,
    /// The digest of its OCI manifest.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Bytes of its OCI manifest and of the blobs that this one names. The server measures them itself.
    pub size_bytes: u64,
}

/// The last word on an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Finished {
    /// In one word.
    pub outcome: Outcome,
    /// The child's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why, when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// A cancel that needed SIGKILL.
    #[serde(default)]
    pub forced: bool,
    /// Bytes of the whole log as it is sent.
    pub log_len: u64,
    /// SHA-256 of the whole log as it is sent, 64 hexadecimal digits.
    pub log_sha256: String,
    /// Bytes that were left out of the middle, as the log itself says.
    #[serde(default)]
    pub omitted: u64,
    /// Processes of the job that could not be ended, at most [`NOT_ENDED`]: `name (pid 7)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ended: Vec<String>,
}

/// The most entries of [`Finished::not_ended`]; the last one may count the rest.
pub const NOT_ENDED: usize = 16;

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The work said so.
    Succeeded,
    /// The work said so, or could not be done.
    Failed,
    /// Somebody asked, and it was stopped.
    Cancelled,
}

impl Outcome {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
        }
    }
}

/// The answer to a report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReportResponse {
    /// The job's state in one word.
    #[serde(default)]
    pub job_state: String,
    /// Log bytes that the server has stored durably, while it waits for more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_bytes: Option<u64>,
    /// A cancel that waits for this execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<PendingCancel>,
}

/// A cancel that waits for an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PendingCancel {
    /// Why, for people.
    pub reason: String,
    /// Seconds from SIGTERM to SIGKILL.
    pub grace_s: u64,
    /// A second request: shorten the grace.
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
