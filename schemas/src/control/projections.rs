//! Projections (read models), and their rebuild and verification.
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::moment;

/// Projection of the log, with its progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Projection {
    /// Name of the projection.
    pub name: String,
    /// Class of the projection. `synchronous`: the server writes the rows together with the events.
    /// `asynchronous`: the rows follow the events. `policy`: the position of the server's policies,
    /// without rows and without rebuild.
    pub class: String,
    /// Version of the projection's code that wrote the rows.
    pub version: u32,
    /// Last log position that the projection includes.
    pub position: u64,
    /// Number of events after `position`, up to the head of the log.
    pub lag: u64,
    /// Positions of the projection's as-of tables. Their names are
    /// `projection_<name>_at_<position>`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub as_of_positions: Vec<u64>,
    /// Number of events that the policies could not process yet. The server's log messages have the
    /// reasons. Present only for the class `policy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<u64>,
}

/// Options of a rebuild.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RebuildQuery {
    /// Number of concurrent workers, 1 to 16. Default: 1. A resumed rebuild keeps its original
    /// number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 16)]
    pub parallel: Option<u32>,
    /// Position at which the rebuild stops. The rebuild then writes a separate as-of table, which
    /// stays until a user drops it. Requires one projection and one worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of_position: Option<u64>,
    /// Time at which the rebuild stops. Otherwise as `as_of_position`.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub as_of_time: Option<DateTime<Utc>>,
}

/// Progress message of a rebuild, a rollback or a verification. The last message has the state
/// `done` or `failed`. A rebuild of all projections sends such a message for each projection, then
/// one for `all`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// Name of the projection, or `all` in a rebuild of all projections.
    pub projection: String,
    /// State: `replaying`, `swapping`, `comparing`, `done` or `failed`.
    pub state: String,
    /// Number of processed events.
    pub events: u64,
    /// Number of events to process.
    pub total: u64,
    /// Number of rows of the projection. Present only at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Name of the as-of table that the rebuild created. Present only at the end of a rebuild as of
    /// a position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Rows that differ from the log. Only in a verification.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// Explanation of the failure. Present only in the state `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Rows and point in time. At most one of `position` and `time` is allowed. Default: the head of
/// the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RowsQuery {
    /// Key of the only row to return, for example an id. Default: all rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Last log position that the rows include.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Last recording time that the rows include.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub time: Option<DateTime<Utc>>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Message with progress or rows of a projection as of a position. The last message has the state
/// `done` or `failed`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RowsProgress {
    /// State: `replaying`, `rows`, `done` or `failed`.
    pub state: String,
    /// Number of processed events.
    pub events: u64,
    /// Number of events to process.
    pub total: u64,
    /// Last log position that the rows include.
    pub position: u64,
    /// Time when the server recorded the event at that position.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub recorded_at: Option<DateTime<Utc>>,
    /// Next rows, sorted by key. Present only in the state `rows`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<ProjectionRow>,
    /// Explanation of the failure. Present only in the state `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Row of a projection as of a position.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProjectionRow {
    /// Key of the row, for example an id.
    pub key: String,
    /// Content of the row as a JSON object.
    #[schema(value_type = Object)]
    pub row: Box<RawValue>,
}
