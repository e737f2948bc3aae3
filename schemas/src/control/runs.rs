//! Runs: orchestrated operations on an install, and the plans that people approve.
use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{InstallId, JobId, RunId, StepId},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Waiting;
use crate::moment;

/// Ask for an operation on an install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestRun {
    /// What.
    pub kind: RequestedKind,
    /// `deploy`: these components and what depends on them; absent: all. Others: absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
    /// `action`: its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2000)]
    pub reason: Option<String>,
}

/// The operations that a person can ask for directly. Input updates and moves to another config
/// version come from a change of the install.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestedKind {
    /// The sandbox, then every component.
    Provision,
    /// The same again, on what is there.
    Reprovision,
    /// Some components, or all.
    Deploy,
    /// Destroy the components, in reverse order.
    Teardown,
    /// Destroy the components and the sandbox.
    Deprovision,
    /// Run one action now.
    Action,
}

/// A run that was admitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunRequested {
    /// The run. Absent: a deprovision of an install of which nothing was left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// Visible from here.
    pub position: u64,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunSummary {
    /// Its id.
    #[schema(value_type = String)]
    pub id: RunId,
    /// On which install.
    #[schema(value_type = String)]
    pub install: InstallId,
    /// The install's name.
    pub install_name: String,
    /// What: `provision`, `reprovision`, `deploy`, `upgrade`, `rollback`, `input_update`, `action`,
    /// `teardown` or `deprovision`. An upgrade or a rollback is to `config_version`.
    pub kind: String,
    /// Which action, where it runs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// `running`, `waiting_for_approval`, `cancelling`, `succeeded`, `failed`, `denied`, `expired` or `cancelled`.
    pub state: String,
    /// By whom: an actor.
    pub requested_by: String,
    /// What they are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by_name: Option<String>,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// On which config version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// How many steps it has.
    pub steps: u64,
    /// How many of them are over.
    pub steps_ended: u64,
    /// When it was asked for.
    #[serde(with = "moment")]
    pub requested_at: DateTime<Utc>,
    /// When it finished.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub ended_at: Option<DateTime<Utc>>,
}

/// A run with its steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// What the list says of it.
    #[serde(flatten)]
    pub run: RunSummary,
    /// Its steps: what a step depends on comes before it.
    pub dag: Vec<Step>,
    /// Which run it is the retry of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub retry_of: Option<RunId>,
    /// The last position that this answer includes.
    pub position: u64,
}

/// One node of a run's DAG.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Step {
    /// Its id.
    #[schema(value_type = String)]
    pub id: StepId,
    /// What it does: `deploy`, `destroy`, `sandbox`, `action` …
    pub kind: String,
    /// To what: a component's or an action's name, or `sandbox`.
    pub name: String,
    /// Steps that must be over first.
    #[schema(value_type = Vec<String>)]
    pub depends_on: Vec<StepId>,
    /// The longest way to it from a step without dependencies: 0, 1, 2 …
    pub layer: u32,
    /// `pending`, `planning`, `waiting_for_approval`, `approved`, `applying`, `running`, `retry_scheduled`, `succeeded`,
    /// `failed`, `cancelled` or `skipped`.
    pub state: String,
    /// The job that works on it now, or did last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub job: Option<JobId>,
    /// What would be, or was, applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Who said yes or no, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Who resolved the unknown outcome of its last job, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<super::jobs::Resolution>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Why it failed or was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A plan, by the digest that an approval is on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// What is approved.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// True: it changes nothing and its apply is skipped.
    pub noop: bool,
    /// Things it would make.
    pub add: u64,
    /// Things it would change.
    pub change: u64,
    /// Things it would destroy.
    pub destroy: u64,
    /// Who made it, where that is known: a tool and its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The blob of its redacted summary.
    #[schema(value_type = String)]
    pub summary: Digest,
}

/// Approval or denial of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// `approved` or `denied`.
    pub decision: String,
    /// An actor: a principal, or the policy that approves by itself.
    pub by: String,
    /// What they are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_name: Option<String>,
    /// In their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
}

/// Say yes to a plan, by its digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveRun {
    /// Which step.
    #[schema(value_type = String)]
    pub step: StepId,
    /// The digest of the plan that was read. Another one by now: refused.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Why; required.
    #[schema(min_length = 1, max_length = 2000)]
    pub reason: String,
}

/// Say no to a plan, by its digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DenyRun {
    /// Which step.
    #[schema(value_type = String)]
    pub step: StepId,
    /// The digest of the plan that was read. Another one by now: refused.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Why; required.
    #[schema(min_length = 1, max_length = 2000)]
    pub reason: String,
}

/// Which runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RunsQuery {
    /// On one install: its name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// In one state: `requested`, `running`, `waiting_for_approval`, `cancelling`, `succeeded`,
    /// `failed`, `cancelled`, `denied` or `expired`.
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
