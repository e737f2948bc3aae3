//! Jobs, units of work for one runner, with their attempts and logs.
use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{BuildId, ExecutionId, InstallId, JobId, RunId, RunnerId, StepId},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Waiting;
use crate::moment;

/// Unit of work for one runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Id of the job.
    #[schema(value_type = String)]
    pub id: JobId,
    /// Kind of work.
    #[schema(value_type = crate::runner::JobKind)]
    pub kind: String,
    /// Consequence of an unknown outcome.
    #[schema(value_type = crate::runner::JobClass)]
    pub class: String,
    /// State: `queued`, `claimed`, `running`, `disconnected`, `outcome_unknown`, `succeeded`,
    /// `failed`, `cancelled` or `lost`.
    pub state: String,
    /// True if a cancel was requested.
    pub cancelling: bool,
    /// Digest of the manifest.
    #[schema(value_type = String)]
    pub manifest: Digest,
    /// Id of the install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub install: Option<InstallId>,
    /// Id of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// Id of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub step: Option<StepId>,
    /// Id of the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub build: Option<BuildId>,
    /// Name of the component or action, or `sandbox`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Executions, oldest first.
    pub attempts: Vec<Attempt>,
    /// Condition that the job waits for. Absent if the job does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Failure reason, one of a closed set of codes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Explanation of the failure for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Latest resolution of its unknown outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
    /// Time when the job was queued.
    #[serde(with = "moment")]
    pub queued_at: DateTime<Utc>,
    /// Time of the end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub ended_at: Option<DateTime<Utc>>,
}

/// Decision of a user about an execution with an unknown outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Resolution {
    /// Id of the execution.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Decision: `succeeded`, `failed` or `retry`.
    pub resolution: String,
    /// Id of the principal.
    pub by: String,
    /// Display name of the principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_name: Option<String>,
    /// Reason of the decision.
    pub reason: String,
    /// Time of the decision.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
}

/// Execution of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Id of the execution, which is the fencing token.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Id of the runner.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Name of the current or last phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Time of the claim.
    #[serde(with = "moment")]
    pub claimed_at: DateTime<Utc>,
    /// Time when the child process started.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub started_at: Option<DateTime<Utc>>,
    /// Time of the end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Exit code of the child process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the child process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Digest of its log, after the log is finalized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<FinalizedLog>,
    /// Statement that the runner signed at the end. Absent if the runner did not report the end, or
    /// does not sign statements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<SignedResult>,
    /// Anomalies that changed nothing: `cancel_too_late` (the job had succeeded), `log_diverged` (the runner sent
    /// different bytes for a stored range), `late_result: …` (result that arrived after the end).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Signed statement of the runner about the end of an execution. A reader can verify it without
/// trust in the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SignedResult {
    /// Signed JSON ([`crate::runner::Statement`]), byte for byte. It is the payload of a DSSE
    /// envelope of type `application/vnd.stead.execution.v1+json`.
    pub statement: String,
    /// Digest of the statement, as in the runner's journal.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Identity key that signed the statement, hexadecimal.
    pub key: String,
    /// True if `key` is, or was, the identity key of the runner that executed the job.
    pub key_matches_runner: bool,
    /// Ed25519 signature of the envelope's pre-authentication encoding, base64.
    pub signature: String,
}

/// Length and digest of a finalized log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FinalizedLog {
    /// Length in bytes.
    pub length_bytes: u64,
    /// SHA-256 of all bytes.
    #[schema(value_type = String)]
    pub sha256: Digest,
    /// Number of output bytes that were omitted from the middle.
    pub omitted_bytes: u64,
    /// True if the server has the complete log. False if the runner did not deliver all of it.
    pub complete: bool,
}

/// Filters and pagination of jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobsQuery {
    /// Filter by install, name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// Filter by run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// Filter by state: `queued`, `claimed`, `running`, `disconnected`, `outcome_unknown`,
    /// `succeeded`, `failed`, `cancelled` or `lost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Maximum number of items, 1 to 200. Default: 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Pagination cursor, the `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Request to cancel a job or a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Reason of the caller for the cancel. Required.
    #[schema(min_length = 1, max_length = 2000)]
    pub reason: String,
    /// True to shorten the grace period to 5 seconds.
    #[serde(default)]
    pub force: bool,
}

/// Request to resolve the unknown outcome of an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolve {
    /// Execution whose outcome is unknown. Another one is rejected.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Resolution of the unknown outcome.
    pub resolution: ResolveAs,
    /// Evidence for the resolution; required.
    #[schema(min_length = 1, max_length = 2000)]
    pub reason: String,
}

/// Resolution of an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolveAs {
    /// The work was done.
    Succeeded,
    /// The work was not done.
    Failed,
    /// The job runs again: it is safe to repeat.
    Retry,
}

/// Start of a log read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Record number after which to start. Cannot be combined with the `Range` header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_n: Option<u64>,
}

/// Record of a log, which holds one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogRecord {
    /// Record number, from 1, without gaps.
    pub n: u64,
    /// Time since the start of the execution, in microseconds, from a monotonic clock.
    pub t: u64,
    /// Origin of the line: `o` standard output, `e` standard error, `x` the shim.
    pub s: String,
    /// Name of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<String>,
    /// Text of the line.
    pub m: String,
    /// True if the line continues in the next record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub c: bool,
}
