//! Jobs, units of work for one runner, with their attempts and logs.
use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{BuildId, ExecutionId, InstallId, JobId, RunId, RunnerId, StepId},
    isolation::Isolation,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Waiting;
use crate::moment;

/// Unit of work for one runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Id of the job: `job_` and a ULID.
    #[schema(value_type = String)]
    pub id: JobId,
    /// Kind of the job.
    #[schema(value_type = crate::runner::JobKind)]
    pub kind: String,
    /// Class of the job, which determines the handling of a lost execution.
    #[schema(value_type = crate::runner::JobClass)]
    pub class: String,
    /// State: `queued`, `claimed`, `running`, `disconnected`, `outcome_unknown`, `succeeded`,
    /// `failed`, `cancelled` or `lost`.
    pub state: String,
    /// True if a cancel was requested and the job has not ended.
    pub cancelling: bool,
    /// Digest of the manifest, which is the SHA-256 of its payload.
    #[schema(value_type = String)]
    pub manifest: Digest,
    /// Id of the install: `ins_` and a ULID. Absent for a build job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub install: Option<InstallId>,
    /// Id of the run: `run_` and a ULID. Absent for a build job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// Id of the step: `stp_` and a ULID. Absent for a build job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub step: Option<StepId>,
    /// Id of the build: `bld_` and a ULID. Absent for a job of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub build: Option<BuildId>,
    /// Component or action of the job, or `sandbox`. For a `resolve` job, its repository and ref.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Executions, oldest first.
    pub attempts: Vec<Attempt>,
    /// Condition that the job waits for. Absent if the job does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Stable code of the failure. Absent without a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Explanation of the failure for users, or a note about an unconfirmed cancel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Last resolution of an unknown outcome. Absent if the job has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
    /// Time when the job was queued.
    #[serde(with = "moment")]
    pub queued_at: DateTime<Utc>,
    /// Time of the end. Absent before the end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub ended_at: Option<DateTime<Utc>>,
}

/// Decision on an execution with an unknown outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Resolution {
    /// Id of the execution: `exe_` and a ULID.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Resolution: `succeeded`, `failed` or `retry`.
    pub resolution: String,
    /// Id of the principal: `prn_` and a ULID.
    pub by: String,
    /// Display name of the principal. Absent if the principal has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_name: Option<String>,
    /// Reason that the principal gave.
    pub reason: String,
    /// Time when the server recorded the decision.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
}

/// Attempt at a job: one execution by one runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Id of the execution: `exe_` and a ULID. The id is the fencing token of the attempt.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Id of the runner: `rnr_` and a ULID.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Name of the current or last phase. Absent if the plugin reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Time when the runner claimed the job.
    #[serde(with = "moment")]
    pub claimed_at: DateTime<Utc>,
    /// Time when the plugin started its work. Absent before the start.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub started_at: Option<DateTime<Utc>>,
    /// Isolation from the runner's host. Absent before the start, and from runners that do not
    /// report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Time of the end. Absent before the end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Exit code of the child process. Absent if a signal ended the process or none ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the child process. Absent if no signal did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Length and digest of the log. Absent before the log is finalized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<FinalizedLog>,
    /// Signed statement of the runner about the result. Absent if the runner reported no result or
    /// signed none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<SignedResult>,
    /// Anomalies that did not affect the outcome. `cancel_too_late`: the job had succeeded.
    /// `log_diverged`: the runner sent bytes that differ from the stored log. `late_result: …`: a
    /// result arrived after the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Signed statement of the runner about the result of an execution. A reader can verify the
/// statement without trust in the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SignedResult {
    /// Signed JSON ([`crate::runner::Statement`]), byte for byte: the payload of a DSSE envelope of
    /// type `application/vnd.stead.execution.v1+json`.
    pub statement: String,
    /// Digest of the statement, as in the runner's journal.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Identity key that verifies the signature, 64 hexadecimal digits.
    pub key: String,
    /// True if `key` is the current or a former identity key of the runner that executed the job.
    pub key_matches_runner: bool,
    /// Ed25519 signature of the envelope's pre-authentication encoding, base64.
    pub signature: String,
}

/// Length and digest of a finalized log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FinalizedLog {
    /// Length of the log in bytes.
    pub length_bytes: u64,
    /// SHA-256 of all bytes of the log.
    #[schema(value_type = String)]
    pub sha256: Digest,
    /// Number of output bytes that the runner omitted from the middle of the log.
    pub omitted_bytes: u64,
    /// True if the server received the complete log. False if the wait for the rest timed out.
    pub complete: bool,
}

/// Filters and pagination of jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobsQuery {
    /// Filter by the name or id of an install.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// Filter by the id of a run.
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
    /// Pagination cursor: `next` of the previous page. Default: the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Request to cancel a job or a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Reason for the cancel, which the log stores.
    #[schema(min_length = 1, max_length = 2000)]
    pub reason: String,
    /// True to shorten the grace period between SIGTERM and SIGKILL to 5 seconds.
    #[serde(default)]
    pub force: bool,
}

/// Request to resolve the unknown outcome of an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolve {
    /// Id of the execution whose outcome is unknown. The server rejects any other execution.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Resolution to record.
    pub resolution: ResolveAs,
    /// Evidence for the resolution, which the log stores.
    #[schema(min_length = 1, max_length = 2000)]
    pub reason: String,
}

/// Decision on an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolveAs {
    /// The work was done. The job counts as succeeded.
    Succeeded,
    /// The work was not done. The job counts as failed.
    Failed,
    /// The principal considers a repetition of the work safe. The job is queued again.
    Retry,
}

/// Start position in a log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Record number after which the response starts. Cannot be combined with the `Range` header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_n: Option<u64>,
}

/// Record of a log: one line of output, or a part of a long line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogRecord {
    /// Record number. Numbers start at 1 and have no gaps.
    pub n: u64,
    /// Time since the start of the execution, in microseconds, from a monotonic clock.
    pub t: u64,
    /// Origin of the line: `o` for standard output, `e` for standard error, `x` for the shim.
    pub s: String,
    /// Name of the current phase. Absent before the first phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<String>,
    /// Text of the line.
    pub m: String,
    /// True if the line continues in the next record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub c: bool,
}
