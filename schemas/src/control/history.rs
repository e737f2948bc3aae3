//! Changes between two points of the log: changed fields, and events grouped by run.
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

/// Start and end of the comparison, each a position or a time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StreamDiffQuery {
    /// Stream, `<aggregate type>/<aggregate id>`. The name of an install or an app is accepted in
    /// place of its id.
    pub stream: String,
    /// Start position. Events after it count as changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_position: Option<u64>,
    /// Start time. Events after it count as changes.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub from_time: Option<DateTime<Utc>>,
    /// End position, inclusive. Default: the head of the log, if `to_time` is also absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_position: Option<u64>,
    /// End time.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub to_time: Option<DateTime<Utc>>,
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Start and end of a comparison of all installs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InstallsDiffQuery {
    /// Start position. Events after it count as changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_position: Option<u64>,
    /// Start time. Events after it count as changes.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub from_time: Option<DateTime<Utc>>,
    /// End position, inclusive. Default: the head of the log, if `to_time` is also absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_position: Option<u64>,
    /// End time.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub to_time: Option<DateTime<Utc>>,
    /// Maximum number of installs, 1 to 50. Default: 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Pagination cursor, the `next` of the previous page. Send the positions of its `from` and
    /// `to` with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Changes of all installs between two points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallsDiff {
    /// Start point, exclusive. It determines every `before` value.
    pub from: Point,
    /// End point, inclusive. It determines every `after` value.
    pub to: Point,
    /// Installs with an event between the points, of the install or of one of its runs, sorted by
    /// id.
    pub items: Vec<StreamDiff>,
    /// Cursor of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Changes of one aggregate between two points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StreamDiff {
    /// Stream, `<aggregate type>/<aggregate id>`.
    pub stream: String,
    /// Name of the install or app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Start point, exclusive. It determines every `before` value.
    pub from: Point,
    /// End point, inclusive. It determines every `after` value.
    pub to: Point,
    /// Changed fields.
    pub changes: Vec<FieldChanged>,
    /// Number of changed fields that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_changes: u64,
    /// Events of the install or run between the points, grouped by run.
    pub runs: Vec<RunActivity>,
    /// Events between the points that belong to no run.
    pub other_events: Vec<EventSummary>,
    /// Last position whose events are all listed. If less than `to`, the response has reached its
    /// limit. To continue, pass it as `from_position`.
    pub complete_through: u64,
}

/// Point in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Point {
    /// Last included position.
    pub position: u64,
    /// Recording time of that position. Absent at position 0.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub recorded_at: Option<DateTime<Utc>>,
}

/// Field with a different value. A missing `before` or `after` means that the field did not exist
/// then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldChanged {
    /// Path of the field, such as `components.api.config_version` or `steps[1].state`.
    pub path: String,
    /// Earlier value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Later value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// Run between two points, with its events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunActivity {
    /// Id of the run.
    #[schema(value_type = String)]
    pub run: RunId,
    /// Operation: `provision`, `upgrade`, `rollback` …
    pub kind: String,
    /// Config version that the run was planned from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// Actor that requested the run.
    pub requested_by: String,
    /// Current display name of the requester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by_name: Option<String>,
    /// Reason of the request, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of the request.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub requested_at: Option<DateTime<Utc>>,
    /// Outcome. Absent before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Time of the end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Approvals, denials, cancels, retries and resolutions, also those before the first point.
    pub interventions: Vec<Intervention>,
    /// Jobs with an event between the points.
    pub jobs: Vec<JobActivity>,
    /// Components that the run changed, or started to change, between the points.
    pub components: Vec<ComponentChange>,
    /// Events of the run between the points.
    pub events: Vec<EventSummary>,
}

/// Decision of a principal, or of a policy, about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Intervention {
    /// Kind: `approved`, `denied`, `expired`, `cancel_requested`, `retried` or `resolved`.
    pub kind: String,
    /// Component or action of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_name: Option<String>,
    /// Digest of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub digest: Option<Digest>,
    /// Actor that caused the intervention.
    pub by: String,
    /// Current display name of the actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_name: Option<String>,
    /// Reason of the intervention, if the actor gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of the intervention.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
    /// Position of the event in the log.
    pub position: u64,
}

/// Job of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobActivity {
    /// Id of the job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Kind: `plan`, `apply` or `action`.
    pub kind: String,
    /// Name of the component or action of its step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Id of the last runner that had the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub runner: Option<RunnerId>,
    /// Number of attempts.
    pub attempts: u32,
    /// Outcome. Absent before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Explanation of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Time when the job was queued.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub queued_at: Option<DateTime<Utc>>,
    /// Time of the end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub ended_at: Option<DateTime<Utc>>,
}

/// Change of a component or of the sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ComponentChange {
    /// Name of the component.
    pub name: String,
    /// State before. Absent if nothing was deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<DeployedVersion>,
    /// State after. Absent if nothing is deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<DeployedVersion>,
    /// True if the actual state is unknown, because an apply is in progress or has failed.
    #[serde(default)]
    pub incomplete: bool,
}

/// Deployed state of a component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeployedVersion {
    /// Config version that the component was deployed from.
    pub config_version: u32,
    /// Id of the deployed build.
    #[schema(value_type = String)]
    pub build: BuildId,
}

/// Event in a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventSummary {
    /// Position of the event in the log.
    pub position: u64,
    /// Recording time.
    #[serde(with = "moment")]
    pub recorded_at: DateTime<Utc>,
    /// Event type, `<aggregate>.<past-tense verb>`, such as `run.approved`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Stream, `<aggregate type>/<aggregate id>`.
    pub stream: String,
    /// Actor that caused the event.
    pub actor: String,
    /// Current display name of the actor that caused the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_name: Option<String>,
    /// Reason, if the event has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
