//! Runs, which are operations on an install, and the plans that users approve.
use chrono::{DateTime, Utc};
use domain::{
    check::Check,
    digest::Digest,
    ids::{InstallId, JobId, RunId, StepId},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Waiting;
use crate::{moment, plugin::PlanDetails};

/// Request for an operation on an install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestRun {
    /// Operation that the run performs on the install.
    pub kind: RequestedKind,
    /// Names of the components for `deploy`, which also includes their dependents. Default: all
    /// components. Not allowed for other operations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
    /// Name of the action. Required for `action`, and not allowed for other operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Reason for the run, which the log stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2000)]
    pub reason: Option<String>,
    /// True to make all plans that depend on no change of the run before its first change. Not
    /// allowed for `action` and `drift`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan_all: bool,
}

/// Operation that a user can request directly. Input updates and moves to another config version
/// follow from a change of the install.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestedKind {
    /// Create the sandbox and all components.
    Provision,
    /// Plan and apply the sandbox and all components again, changed or not.
    Reprovision,
    /// Deploy some components of the pinned config version, or all.
    Deploy,
    /// Destroy all components, dependents first. The sandbox stays.
    Teardown,
    /// Destroy all components and the sandbox.
    Deprovision,
    /// Execute one action.
    Action,
    /// Compare the sandbox and all components with the config, without changes.
    Drift,
}

/// Result of a request for a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunRequested {
    /// Id of the run: `run_` and a ULID. Absent if a deprovision found nothing to destroy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// Log position of the change. A read with this `min_position` includes the change.
    pub position: u64,
}

/// Run without its steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunSummary {
    /// Id of the run: `run_` and a ULID.
    #[schema(value_type = String)]
    pub id: RunId,
    /// Id of the install: `ins_` and a ULID.
    #[schema(value_type = String)]
    pub install: InstallId,
    /// Name of the install, which never changes.
    pub install_name: String,
    /// Operation: `provision`, `reprovision`, `deploy`, `upgrade`, `rollback`, `input_update`,
    /// `action`, `teardown`, `deprovision` or `drift`.
    pub kind: String,
    /// Name of the action. Present only for the operation `action`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// State: `requested`, `running`, `waiting_for_approval`, `cancelling`, `succeeded`, `failed`,
    /// `denied`, `expired` or `cancelled`.
    pub state: String,
    /// Actor that requested the run: `prn_…`, `rnr_…`, `policy:<name>`, `timer:<name>` or `system`.
    pub requested_by: String,
    /// Display name of the requester. Absent if the requester has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by_name: Option<String>,
    /// Reason that the requester gave. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Config version from which the steps were planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// Number of planned steps.
    pub steps: u64,
    /// Number of steps that succeeded, failed or were skipped.
    pub steps_ended: u64,
    /// Time when the run was requested.
    #[serde(with = "moment")]
    pub requested_at: DateTime<Utc>,
    /// Time of the end. Absent before the end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Plans that wait for an approval now. Absent if none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_plans: Option<WaitingPlans>,
}

/// Plans of a run that wait for an approval, with their changes together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WaitingPlans {
    /// Number of plans.
    pub plans: u64,
    /// Number of resources to create.
    pub add: u64,
    /// Number of resources to change.
    pub change: u64,
    /// Number of resources to destroy.
    pub destroy: u64,
    /// Time when the first of the plans was made.
    #[serde(with = "moment")]
    pub since: DateTime<Utc>,
}

/// Run with its steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// Run without its steps.
    #[serde(flatten)]
    pub run: RunSummary,
    /// Checks of the requirements before the first change. Absent for a run that applies nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<Preflight>,
    /// True if the run makes all plans that depend on none of its changes before its first change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan_all: bool,
    /// True if the first change of a run with `plan_all` waits for plans.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_plans: bool,
    /// Steps in topological order: each step follows its dependencies.
    pub dag: Vec<Step>,
    /// Id of the earlier run whose unfinished work this run repeats: `run_` and a ULID. Absent for
    /// other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub retry_of: Option<RunId>,
    /// Last log position that the response includes.
    pub position: u64,
}

/// Checks of the requirements of a run before its first change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Preflight {
    /// State: `pending`, `running`, `passed` or `failed`. Applies and actions start after `passed`.
    pub state: String,
    /// Id of the job that checks the requirements: `job_` and a ULID. Absent before the job is
    /// queued, and if the server found the problem itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub job: Option<JobId>,
    /// Results, failed ones first. Empty before the end.
    pub checks: Vec<Check>,
    /// Explanation of a failure. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Condition that the job waits for. Absent if the job does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Time when the job was queued. Absent before.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub started_at: Option<DateTime<Utc>>,
    /// Time when the result was recorded. Absent before.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub ended_at: Option<DateTime<Utc>>,
}

/// Step of a run, with its plan and its decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Step {
    /// Id of the step: `stp_` and a ULID.
    #[schema(value_type = String)]
    pub id: StepId,
    /// Kind of the step: `sandbox` or `deploy` for an apply, `destroy`, `action`, or `check` for a
    /// plan that is never applied. A check that succeeded found drift if its plan has changes.
    pub kind: String,
    /// Component or action of the step, or `sandbox`.
    pub name: String,
    /// Ids of the steps that must succeed before the step starts.
    #[schema(value_type = Vec<String>)]
    pub depends_on: Vec<StepId>,
    /// Length of the longest dependency path to the step. 0 for a step without dependencies.
    pub layer: u32,
    /// State: `pending`, `planning`, `waiting_for_approval`, `approved`, `applying`, `running`,
    /// `retry_scheduled`, `succeeded`, `failed`, `cancelled` or `skipped`.
    pub state: String,
    /// Id of the current or last job: `job_` and a ULID. Absent before the first job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub job: Option<JobId>,
    /// Last plan of the step. Absent before a runner reported one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Last decision on a plan of the step. Absent before a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Resolution of an unknown outcome of the last job. Absent if the job has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<super::jobs::Resolution>,
    /// True if a dependency changes in this run, so that the step is planned and approved later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approval_later: bool,
    /// Condition that the step waits for. Absent if the step does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Explanation of a failure, or the code of a skip: `denied`, `expired`, `cancelled`,
    /// `preflight_failed` or `blocked`. Absent for other steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Plan of a step, without the planned values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// Plan digest, which an approval covers.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// True if the plan has no changes. The step then succeeds without an apply, unless the config
    /// requires one.
    pub noop: bool,
    /// Number of resources to create.
    pub add: u64,
    /// Number of resources to change.
    pub change: u64,
    /// Number of resources to destroy.
    pub destroy: u64,
    /// Name and version of the tool that made the plan. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Digest of the redacted summary, which `GET /v1/blobs/{digest}` returns.
    #[schema(value_type = String)]
    pub summary: Digest,
    /// True if the plan has details, which `GET /v1/runs/{run}/steps/{step}/plan/details` returns.
    #[serde(default)]
    pub has_details: bool,
}

/// Details of a step's plan. Approvers, auditors and owners can read them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepPlanDetails {
    /// Plan digest, which covers the details.
    #[schema(value_type = String)]
    pub plan: Digest,
    /// State of the details.
    pub state: DetailsState,
    /// Salted digest of the details, as `proof::plan::details` defines it. Absent if the plan has
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub digest: Option<Digest>,
    /// Salt of the digest. Present if the details are available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub salt: Option<Digest>,
    /// Details. Present if they are available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<PlanDetails>,
}

/// State of the details of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DetailsState {
    /// The details are available.
    Available,
    /// The plugin supplied no details.
    None,
    /// The data of the install was erased.
    Erased,
}

/// Approval or denial of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// Decision: `approved` or `denied`.
    pub decision: String,
    /// Actor of the decision: `prn_…`, or `policy:<name>` for an automatic approval.
    pub by: String,
    /// Display name of the actor. Absent if the actor has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_name: Option<String>,
    /// Reason that the actor gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time when the server recorded the decision.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
}

/// Request to approve a plan, by its digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveRun {
    /// Id of the step: `stp_` and a ULID.
    #[schema(value_type = String)]
    pub step: StepId,
    /// Digest of the plan that the user reviewed. The server rejects the approval if the step has
    /// another plan.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Reason for the approval, which the log stores.
    #[schema(min_length = 1, max_length = 2000)]
    pub reason: String,
}

/// Request to deny a plan, by its digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DenyRun {
    /// Id of the step: `stp_` and a ULID.
    #[schema(value_type = String)]
    pub step: StepId,
    /// Digest of the plan that the user reviewed. The server rejects the denial if the step has
    /// another plan.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Reason for the denial, which the log stores.
    #[schema(min_length = 1, max_length = 2000)]
    pub reason: String,
}

/// Filters and pagination of runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RunsQuery {
    /// Filter by the name or id of an install.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// Filter by state: `requested`, `running`, `waiting_for_approval`, `cancelling`, `succeeded`,
    /// `failed`, `cancelled`, `denied` or `expired`.
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
