//! What changed between two points of the log: the fields, and what happened in between, by run.
use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{BuildId, JobId, RunId, RunnerId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::moment;

/// Between which two points: each a position or a moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StreamDiffQuery {
    /// `<aggregate type>/<aggregate id>`; an install's or an app's name will do instead of its id.
    pub stream: String,
    /// After this position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_position: Option<u64>,
    /// After this moment.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub from_time: Option<DateTime<Utc>>,
    /// Up to this position. As of now when both are absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_position: Option<u64>,
    /// Up to this moment.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub to_time: Option<DateTime<Utc>>,
    /// Wait (at most 5 s) until the answer includes this position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Between which two points, in every install.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InstallsDiffQuery {
    /// After this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_position: Option<u64>,
    /// After this moment.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub from_time: Option<DateTime<Utc>>,
    /// Up to this position. As of now when both are absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_position: Option<u64>,
    /// Up to this moment.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub to_time: Option<DateTime<Utc>>,
    /// How many installs at most, 1 to 50. 20 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `next` of the page before; send the positions of its `from` and `to` with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Wait (at most 5 s) until the answer includes this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// What changed in every install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallsDiff {
    /// The first point: what was recorded up to it is before.
    pub from: Point,
    /// The second point: what was recorded up to it is after.
    pub to: Point,
    /// Each install of which, or of a run of which, an event was recorded in between, by id.
    pub items: Vec<StreamDiff>,
    /// Cursor of the next page. Absent: this is the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What changed of one thing, and what happened in between.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StreamDiff {
    /// The thing.
    pub stream: String,
    /// What an install or an app is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The first point: what was recorded up to it is before.
    pub from: Point,
    /// The second point: what was recorded up to it is after.
    pub to: Point,
    /// The fields that differ.
    pub changes: Vec<FieldChanged>,
    /// How many more fields differ than are listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_changes: u64,
    /// What happened in between to an install, or to a run, by run.
    pub runs: Vec<RunActivity>,
    /// Events in between that belong to no run.
    pub other_events: Vec<EventSummary>,
    /// Last position whose events are all listed. Less than `to` when the response has reached its limit: continue with
    /// `from_position` = this.
    pub complete_through: u64,
}

/// A point of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Point {
    /// The last position that is included.
    pub position: u64,
    /// When that was recorded. Absent at 0.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub recorded_at: Option<DateTime<Utc>>,
}

/// A field that is not the same. A side is absent where the field was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldChanged {
    /// Where: `components.api.config_version`, `steps[1].state`.
    pub path: String,
    /// What it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunActivity {
    /// Which.
    #[schema(value_type = String)]
    pub run: RunId,
    /// What was to be done: `provision`, `upgrade`, `rollback` …
    pub kind: String,
    /// The config version that it was planned from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// Who asked.
    pub requested_by: String,
    /// What they are called today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by_name: Option<String>,
    /// Why, if they said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub requested_at: Option<DateTime<Utc>>,
    /// How it ended; absent: it had not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Approvals, denials, cancels, retries and resolutions, also those before the first point.
    pub interventions: Vec<Intervention>,
    /// The jobs of which something happened in between.
    pub jobs: Vec<JobActivity>,
    /// What it changed, or began to change, in between.
    pub components: Vec<ComponentChange>,
    /// What happened in between.
    pub events: Vec<EventSummary>,
}

/// Decision of a principal, or of a policy, about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Intervention {
    /// `approved`, `denied`, `expired`, `cancel_requested`, `retried` or `resolved`.
    pub kind: String,
    /// Component or action of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_name: Option<String>,
    /// Digest of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub digest: Option<Digest>,
    /// Who.
    pub by: String,
    /// What they are called today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_name: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
    /// Where in the log.
    pub position: u64,
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobActivity {
    /// Which.
    #[schema(value_type = String)]
    pub job: JobId,
    /// `plan`, `apply` or `action`.
    pub kind: String,
    /// Component or action of its step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Who had it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub runner: Option<RunnerId>,
    /// How often it was tried.
    pub attempts: u32,
    /// How it ended; absent: it had not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// When it was queued.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub queued_at: Option<DateTime<Utc>>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub ended_at: Option<DateTime<Utc>>,
}

/// What became of a component, or of the sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ComponentChange {
    /// By name.
    pub name: String,
    /// What was there before; absent: nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<DeployedVersion>,
    /// What is there; absent: nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<DeployedVersion>,
    /// Whether nobody can say what of it is there: an apply goes on, or has failed.
    #[serde(default)]
    pub incomplete: bool,
}

/// What of a component is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeployedVersion {
    /// The config version it was brought by.
    pub config_version: u32,
    /// The build that was brought.
    #[schema(value_type = String)]
    pub build: BuildId,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventSummary {
    /// Where in the log.
    pub position: u64,
    /// When.
    #[serde(with = "moment")]
    pub recorded_at: DateTime<Utc>,
    /// `aggregate.verb_past`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// `<aggregate type>/<aggregate id>`.
    pub stream: String,
    /// Who did it.
    pub actor: String,
    /// What they are called today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_name: Option<String>,
    /// Why, where the event says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
