//! Projections: the read side, and how to rebuild and verify it.
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::moment;

/// One read model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Projection {
    /// Its name.
    pub name: String,
    /// `synchronous`: written with the events; `asynchronous`: follows them; `policy`: no rows, what
    /// the server does by itself because of the events. It cannot be rebuilt.
    pub class: String,
    /// Which version of it is in use.
    pub version: u32,
    /// The last position that it includes.
    pub position: u64,
    /// How many events it is behind.
    pub lag: u64,
    /// Positions of its as-of tables, `view_<name>_at_<position>`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub as_of_positions: Vec<u64>,
    /// Policies only: number of events that could not be processed yet. The server's log has the reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<u64>,
}

/// How to rebuild.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RebuildQuery {
    /// How many workers share the streams: 1 to 16. 1 when absent. A rebuild that was begun goes on with as many as
    /// it was begun with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 16)]
    pub parallel: Option<u32>,
    /// Up to this position, into a table of its own beside the one in use: it is never put into use, and stays until
    /// it is dropped. Of one projection, with one worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of_position: Option<u64>,
    /// The same up to this moment.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub as_of_time: Option<DateTime<Utc>>,
}

/// How far a rebuild, a rollback or a verification is. The last one has `state` `done` or `failed`; of a rebuild of
/// all there is one for each projection before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// Of which projection; `all` when they are made together.
    pub projection: String,
    /// `replaying`, `swapping`, `comparing`, `done` or `failed`.
    pub state: String,
    /// Events taken in.
    pub events: u64,
    /// Events there are.
    pub total: u64,
    /// Rows there are now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Of a rebuild as of a position: the table that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Verification: rows that differ from what the log says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Which rows, as of when. Of position and moment at most one; without both as of now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RowsQuery {
    /// The row of this key only: an id. Absent: all rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// As of this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// As of this moment.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub time: Option<DateTime<Utc>>,
    /// Wait (at most 5 s) until the answer includes this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// A part of a projection as it was. The last one has `state` `done` or `failed`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RowsProgress {
    /// `replaying`, `rows`, `done` or `failed`.
    pub state: String,
    /// Events taken in.
    pub events: u64,
    /// Events to take in.
    pub total: u64,
    /// The last position that the rows include.
    pub position: u64,
    /// When that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub recorded_at: Option<DateTime<Utc>>,
    /// The next rows, in the order of their keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<ProjectionRow>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// One row of a projection.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProjectionRow {
    /// Its key.
    pub key: String,
    /// What it said.
    #[schema(value_type = Object)]
    pub row: Box<RawValue>,
}
