//! Runs, the orchestrated operations on an install, and the plans that users approve.
use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{InstallId, JobId, RunId, StepId},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Waiting;
use crate::moment;

/// Request for an operation on an install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestRun {
    /// Operation that the run performs on the install.
    pub kind: RequestedKind,
    /// Components for `deploy`, which also includes their dependents. Default: all. Not allowed for
    /// other operations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
    /// Name of the action for `action`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Reason of the caller for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2000)]
    pub reason: Option<String>,
}

/// Operations that a user can request directly. Input updates and moves to another config version
/// result from a change of the install.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestedKind {
    /// Provisions the sandbox, then every component.
    Provision,
    /// Provisions the existing sandbox and components again.
    Reprovision,
    /// Deploys some components, or all.
    Deploy,
    /// Destroys the components, dependents first.
    Teardown,
    /// Destroys the components and the sandbox.
    Deprovision,
    /// Runs one action.
    Action,
}

/// Admitted run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunRequested {
    /// Id of the run. Absent if a deprovision found nothing to destroy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// Position after which reads include the change.
    pub position: u64,
}

/// Run in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunSummary {
    /// Id of the run.
    #[schema(value_type = String)]
    pub id: RunId,
    /// Id of the install.
    #[schema(value_type = String)]
    pub install: InstallId,
    /// Name of the install.
    pub install_name: String,
    /// Operation: `provision`, `reprovision`, `deploy`, `upgrade`, `rollback`, `input_update`,
    /// `action`, `teardown` or `deprovision`. An upgrade or rollback moves to `config_version`.
    pub kind: String,
    /// Name of the action, for an action run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// State: `running`, `waiting_for_approval`, `cancelling`, `succeeded`, `failed`, `denied`,
    /// `expired` or `cancelled`.
    pub state: String,
    /// Actor that requested the run.
    pub requested_by: String,
    /// Display name of the requester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by_name: Option<String>,
    /// Reason that the requester gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Config version of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// Number of steps.
    pub steps: u64,
    /// Number of finished steps.
    pub steps_ended: u64,
    /// Time of the request.
    #[serde(with = "moment")]
    pub requested_at: DateTime<Utc>,
    /// Time of the end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub ended_at: Option<DateTime<Utc>>,
}

/// Run with its steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// Run as in the list.
    #[serde(flatten)]
    pub run: RunSummary,
    /// Steps in topological order: a step follows its dependencies.
    pub dag: Vec<Step>,
    /// Id of the run that this run retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub retry_of: Option<RunId>,
    /// Last position that the response includes.
    pub position: u64,
}

/// Step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Step {
    /// Id of the step.
    #[schema(value_type = String)]
    pub id: StepId,
    /// Kind: `deploy`, `destroy`, `sandbox`, `action` …
    pub kind: String,
    /// Name of the component or action, or `sandbox`.
    pub name: String,
    /// Ids of the steps that must finish first.
    #[schema(value_type = Vec<String>)]
    pub depends_on: Vec<StepId>,
    /// Length of the longest dependency path to the step, from 0.
    pub layer: u32,
    /// State: `pending`, `planning`, `waiting_for_approval`, `applying`, `succeeded`, `failed`,
    /// `skipped` …
    pub state: String,
    /// Id of the current or last job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub job: Option<JobId>,
    /// Latest plan of the step. Absent before a runner reported one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Decision on the plan. Absent: no actor has decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Resolution of the unknown outcome of its last job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<super::jobs::Resolution>,
    /// Condition that the step waits for. Absent if the step does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Reason for which the step failed or was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Plan with the digest that an approval covers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// Digest that an approval covers.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// True if the plan has no changes. If so, its apply is skipped.
    pub noop: bool,
    /// Number of resources to create.
    pub add: u64,
    /// Number of resources to change.
    pub change: u64,
    /// Number of resources to destroy.
    pub destroy: u64,
    /// Name and version of the tool that made the plan, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Digest of the blob with the redacted summary.
    #[schema(value_type = String)]
    pub summary: Digest,
}

/// Approval or denial of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// Decision: `approved` or `denied`.
    pub decision: String,
    /// Actor: a principal, or the policy that approves automatically.
    pub by: String,
    /// Display name of the actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_name: Option<String>,
    /// Reason of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of the decision.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
}

/// Approval of a plan, by its digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveRun {
    /// Id of the step.
    #[schema(value_type = String)]
    pub step: StepId,
    /// Digest of the plan that the user reviewed. The server rejects the approval if the step has
    /// another plan.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Reason of the caller for the approval. Required.
    #[schema(min_length = 1, max_length = 2000)]
    pub reason: String,
}

/// Denial of a plan, by its digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DenyRun {
    /// Id of the step.
    #[schema(value_type = String)]
    pub step: StepId,
    /// Digest of the plan that the user reviewed. The server rejects the denial if the step has
    /// another plan.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Reason of the caller for the denial. Required.
    #[schema(min_length = 1, max_length = 2000)]
    pub reason: String,
}

/// Filters and pagination of runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RunsQuery {
    /// Filter by install, name or id.
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
    /// Pagination cursor, the `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}
