//! Jobs: units of work for one runner, their attempts and their logs.
use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{BuildId, ExecutionId, InstallId, JobId, RunId, RunnerId, StepId},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Waiting;
use crate::moment;

/// One unit of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its id.
    #[schema(value_type = String)]
    pub id: JobId,
    /// `build`, `plan`, `apply` or `action`.
    pub kind: String,
    /// What a second start would do: `pure`, `mutating` or `unsafe`.
    pub class: String,
    /// `queued`, `claimed`, `running`, `disconnected`, `outcome_unknown`, `succeeded`, `failed`, `cancelled` or `lost`.
    pub state: String,
    /// Whether somebody asked to cancel it.
    pub cancelling: bool,
    /// What exactly to do.
    #[schema(value_type = String)]
    pub manifest: Digest,
    /// For which install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub install: Option<InstallId>,
    /// For which run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// For which step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub step: Option<StepId>,
    /// For which build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub build: Option<BuildId>,
    /// To what: a component's or an action's name, or `sandbox`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its executions, the first one first.
    pub attempts: Vec<Attempt>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Why it did not succeed: one word of a closed set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Who resolved its unknown outcome last, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
    /// When it was queued.
    #[serde(with = "moment")]
    pub queued_at: DateTime<Utc>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub ended_at: Option<DateTime<Utc>>,
}

/// Decision of a user about an execution whose outcome is unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Resolution {
    /// The execution.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// `succeeded`, `failed` or `retry`.
    pub resolution: String,
    /// The principal.
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

/// One execution of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// 1, 2, 3 …
    pub attempt: u32,
    /// Its id, the fencing token.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// By which runner.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// What it is doing: the name of the last phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// When the runner took it.
    #[serde(with = "moment")]
    pub claimed_at: DateTime<Utc>,
    /// When the child was started.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub ended_at: Option<DateTime<Utc>>,
    /// How the child exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Which signal ended the child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Its log, once sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<FinalizedLog>,
    /// What its runner signed when it ended. Absent: it has not ended by its runner's word, or the runner is of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Signed>,
    /// Anomalies that changed nothing: `cancel_too_late` (the job had succeeded), `log_diverged` (the runner sent
    /// different bytes for a stored range), `late_result: …` (result that arrived after the end).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// How an execution ended in its runner's own words, for who will not take the server's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Signed {
    /// The JSON that was signed ([`crate::runner::Statement`]), byte for byte: the payload of a DSSE envelope of type
    /// `application/vnd.stead.execution.v1+json`.
    pub statement: String,
    /// Its digest, as the runner's journal has it.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// The identity key, hexadecimal.
    pub key: String,
    /// Whether `key` is, or was, the identity key of the runner that executed the job.
    pub key_matches_runner: bool,
    /// Ed25519 over the envelope's pre-authentication encoding, base64.
    pub signature: String,
}

/// The end of a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FinalizedLog {
    /// How long it is.
    pub length_bytes: u64,
    /// Of all its bytes.
    #[schema(value_type = String)]
    pub sha256: Digest,
    /// How much of the output was left out in the middle.
    pub omitted_bytes: u64,
    /// False: the runner never delivered all of it.
    pub complete: bool,
}

/// Which jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobsQuery {
    /// For one install: its name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// For one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// In one state: `queued`, `claimed`, `running`, `disconnected`, `outcome_unknown`,
    /// `succeeded`, `failed`, `cancelled` or `lost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// See the list parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// See the list parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// See the list parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Stop a job, or a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Why; required.
    #[schema(min_length = 1, max_length = 2000)]
    pub reason: String,
    /// Do not wait for the grace period to pass.
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

/// Where in a log to start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Only records after this number. Not together with `Range`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_n: Option<u64>,
}

/// One record of a log: a line of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogRecord {
    /// From 1, without a gap.
    pub n: u64,
    /// Microseconds since the start, monotonic.
    pub t: u64,
    /// `o` stdout, `e` stderr, `x` the shim.
    pub s: String,
    /// The phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<String>,
    /// The line.
    pub m: String,
    /// True: the line goes on in the next record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub c: bool,
}
