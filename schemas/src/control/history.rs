//! Comparison of two points of the log: changed fields, and events grouped by run.
mod convert;

use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{BuildId, JobId, RunId, RunnerId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::moment;
pub use convert::HistoryConverter;

/// Stream to compare, with start and end point. Each point is a position or a time; the start is
/// required.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StreamDiffQuery {
    /// Stream, `<aggregate type>/<aggregate id>`. For an install or an app, its name may replace
    /// the id.
    pub stream: String,
    /// Start position, exclusive: changes begin with the next event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_position: Option<u64>,
    /// Start time, exclusive: changes begin with the next event.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub from_time: Option<DateTime<Utc>>,
    /// End position, inclusive. Without `to_position` and `to_time`, the end is the head of the
    /// log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_position: Option<u64>,
    /// End time, inclusive.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub to_time: Option<DateTime<Utc>>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Start and end point of a comparison of all installs. Each point is a position or a time; the
/// start is required.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InstallsDiffQuery {
    /// Start position, exclusive: changes begin with the next event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_position: Option<u64>,
    /// Start time, exclusive: changes begin with the next event.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub from_time: Option<DateTime<Utc>>,
    /// End position, inclusive. Without `to_position` and `to_time`, the end is the head of the
    /// log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_position: Option<u64>,
    /// End time, inclusive.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub to_time: Option<DateTime<Utc>>,
    /// Maximum number of installs, 1 to 50. Default: 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Pagination cursor: `next` of the previous page. Also send the positions of that page's
    /// `from` and `to`. Default: the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Page of the installs with changes between two points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallsDiff {
    /// Start point, exclusive. Every `before` value is as of this point.
    pub from: Point,
    /// End point, inclusive. Every `after` value is as of this point.
    pub to: Point,
    /// Installs that have an event between the points, or whose run has one, sorted by id.
    pub items: Vec<StreamDiff>,
    /// Cursor of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Changes of one aggregate between two points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StreamDiff {
    /// Stream, `<aggregate type>/<aggregate id>`, such as `install/ins_…`.
    pub stream: String,
    /// Name of the install or app. Absent for other aggregates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Start point, exclusive. Every `before` value is as of this point.
    pub from: Point,
    /// End point, inclusive. Every `after` value is as of this point.
    pub to: Point,
    /// Changed fields of the aggregate's state, at most 2,000.
    pub changes: Vec<FieldChanged>,
    /// Number of changed fields that `changes` omits. Absent: 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_changes: u64,
    /// Runs with events between the points. Only for an install or a run.
    pub runs: Vec<RunActivity>,
    /// Events between the points that belong to no run.
    pub other_events: Vec<EventSummary>,
    /// Last position up to which the response has all events. If less than `to`, the response has
    /// reached its limit: to continue, pass this value as `from_position`.
    pub complete_through: u64,
}

/// Point in the log: a position and its recording time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Point {
    /// Last log position that the point includes.
    pub position: u64,
    /// Recording time of that position. Absent at position 0.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub recorded_at: Option<DateTime<Utc>>,
}

/// Field with different values at the two points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldChanged {
    /// Path of the field, such as `components.api.config_version` or `steps[1].state`.
    pub path: String,
    /// Value at the start point. Absent if the field did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Value at the end point. Absent if the field does not exist any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// Run with its events between two points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunActivity {
    /// Id of the run: `run_` and a ULID.
    #[schema(value_type = String)]
    pub run: RunId,
    /// Operation, as in the list of runs, for example `provision` or `upgrade`.
    pub kind: String,
    /// Config version from which the steps were planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// Actor that requested the run: `prn_…`, `rnr_…`, `policy:<name>`, `timer:<name>` or `system`.
    pub requested_by: String,
    /// Current display name of the requester. Absent if the requester has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by_name: Option<String>,
    /// Reason that the requester gave. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time when the run was requested.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub requested_at: Option<DateTime<Utc>>,
    /// Outcome at the end point: `succeeded`, `failed`, `cancelled`, `denied` or `expired`. Absent
    /// before the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Time of the end. Absent before the end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Approvals, denials, expiries, cancels, retries and resolutions of the run. Includes
    /// interventions before the start point.
    pub interventions: Vec<Intervention>,
    /// Jobs of the run that have an event between the points.
    pub jobs: Vec<JobActivity>,
    /// Components that the run changed, or started to change, between the points.
    pub components: Vec<ComponentChange>,
    /// Events of the run between the points.
    pub events: Vec<EventSummary>,
}

/// Approval, denial, expiry, cancel, retry or resolution in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Intervention {
    /// Kind of the intervention: `approved`, `denied`, `expired`, `cancel_requested`, `retried` or
    /// `resolved`.
    pub kind: String,
    /// Component or action of the step, or `sandbox`. Absent if the intervention concerns the whole
    /// run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_name: Option<String>,
    /// Digest of the plan. Absent if the intervention concerns no plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub digest: Option<Digest>,
    /// Actor of the intervention: `prn_…`, `policy:<name>`, `timer:<name>` or `system`.
    pub by: String,
    /// Current display name of the actor. Absent if the actor has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_name: Option<String>,
    /// Reason that the actor gave. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time when the server recorded the intervention.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
    /// Log position of the event.
    pub position: u64,
}

/// Job of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobActivity {
    /// Id of the job: `job_` and a ULID.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Kind of the job: `plan`, `apply` or `action`.
    pub kind: String,
    /// Component or action of the job's step, or `sandbox`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Id of the last runner that claimed the job: `rnr_` and a ULID. Absent before a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub runner: Option<RunnerId>,
    /// Number of attempts so far.
    pub attempts: u32,
    /// Outcome at the end point: `succeeded`, `failed`, `cancelled` or `lost`. Absent before the
    /// end of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Explanation of the failure for users. Absent without a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Time when the job was queued.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub queued_at: Option<DateTime<Utc>>,
    /// Time of the end. Absent before the end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub ended_at: Option<DateTime<Utc>>,
}

/// Change of a component or of the sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ComponentChange {
    /// Name of the component, or `sandbox`.
    pub name: String,
    /// Deployed version before the run. Absent if the component was not deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<DeployedVersion>,
    /// Deployed version after the run, or at the end point. Absent if the component is not
    /// deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<DeployedVersion>,
    /// True if the component may be partly changed, because its last apply is in progress or did
    /// not succeed.
    #[serde(default)]
    pub incomplete: bool,
}

/// Deployed version of a component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeployedVersion {
    /// Config version of the run that deployed the component.
    pub config_version: u32,
    /// Id of the deployed build: `bld_` and a ULID.
    #[schema(value_type = String)]
    pub build: BuildId,
}

/// Summary of an event, without its payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventSummary {
    /// Log position of the event.
    pub position: u64,
    /// Time when the server recorded the event.
    #[serde(with = "moment")]
    pub recorded_at: DateTime<Utc>,
    /// Event type, `<aggregate>.<past-tense verb>`, such as `run.approved`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Stream, `<aggregate type>/<aggregate id>`, such as `install/ins_…`.
    pub stream: String,
    /// Actor that caused the event: `prn_…`, `rnr_…`, `policy:<name>`, `timer:<name>` or `system`.
    pub actor: String,
    /// Current display name of the actor. Absent if the actor has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_name: Option<String>,
    /// Reason in the event's payload. Absent if the payload has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
