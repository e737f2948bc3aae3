//! Projections (read models), and their rebuild and verification.
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::moment;

/// Projection of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Projection {
    /// Name of the projection.
    pub name: String,
    /// Class. `synchronous`: written with the events. `asynchronous`: follows the events. `policy`:
    /// no rows, only the position of the server's policies, which cannot be rebuilt.
    pub class: String,
    /// Version in use.
    pub version: u32,
    /// Last position that the projection includes.
    pub position: u64,
    /// Number of events after `position`, up to the head of the log.
    pub lag: u64,
    /// Positions of the as-of tables, which are named `projection_<name>_at_<position>`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub as_of_positions: Vec<u64>,
    /// Number of events that the policies could not process yet. The reasons are in the server's
    /// own log messages. Present for policies only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<u64>,
}

/// Options of a rebuild.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RebuildQuery {
    /// Number of workers that share the streams, 1 to 16. Default: 1. A resumed rebuild keeps its
    /// original number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 16)]
    pub parallel: Option<u32>,
    /// Position at which the rebuild stops. The rows go to a separate as-of table, which is never
    /// activated and stays until it is dropped. Requires one projection and one worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of_position: Option<u64>,
    /// Time at which the rebuild stops, otherwise as `as_of_position`.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub as_of_time: Option<DateTime<Utc>>,
}

/// Progress of a rebuild, a rollback or a verification. The last message has `state` `done` or
/// `failed`. A rebuild of all projections first sends such a message for each projection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// Name of the projection. `all` if they are rebuilt together.
    pub projection: String,
    /// State: `replaying`, `swapping`, `comparing`, `done` or `failed`.
    pub state: String,
    /// Number of events processed.
    pub events: u64,
    /// Total number of events.
    pub total: u64,
    /// Number of rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Name of the as-of table that the rebuild created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Rows that differ from the log, in a verification.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// Explanation of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Rows of a projection to read as of a point in time. At most one of `position` and `time` is
/// allowed. Default: the head of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RowsQuery {
    /// Key of the only row to return, an id. Default: all rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Position as of which to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Time as of which to read.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub time: Option<DateTime<Utc>>,
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Part of a projection as of a position. The last message has `state` `done` or `failed`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RowsProgress {
    /// State: `replaying`, `rows`, `done` or `failed`.
    pub state: String,
    /// Number of events processed.
    pub events: u64,
    /// Number of events to process.
    pub total: u64,
    /// Last position that the rows include.
    pub position: u64,
    /// Recording time of that position.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub recorded_at: Option<DateTime<Utc>>,
    /// Next rows, sorted by key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<ProjectionRow>,
    /// Explanation of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Row of a projection.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProjectionRow {
    /// Key of the row.
    pub key: String,
    /// Content of the row as of the position.
    #[schema(value_type = Object)]
    pub row: Box<RawValue>,
}
