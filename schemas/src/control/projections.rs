//! Projections: the read side, and how to rebuild and verify it.
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

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
    /// Of policies: events that could not be reacted to yet; the server's own log says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<u64>,
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
    /// Verification: rows that differ from what the log says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
