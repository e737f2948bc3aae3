//! Queries for proof bundles and for ranges of the log.
use chrono::{DateTime, Utc};
use domain::ids::EventId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::moment;

/// Content of a bundle. Exactly one of `install`, `stream`, `position` and `event` is required.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BundleQuery {
    /// Name or id of an install. The bundle has all events of the install, its runs, their jobs and
    /// builds, and of the runners that executed the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// Stream whose events to include, `<aggregate type>/<aggregate id>`. For an install or an app,
    /// its name may replace the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Log position of a single event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Id of a single event: `evt_` and a ULID.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    pub event: Option<EventId>,
    /// Earlier checkpoint, as a C2SP signed note. The bundle then also proves that the log is a
    /// continuation of the earlier log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prior_checkpoint: Option<String>,
    /// Entries of other streams to add. Default: `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub other_entries: Option<OtherEntries>,
    /// True to replace payloads and metadata with their hashes, and to omit the salts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hashes_only: Option<bool>,
    /// True to add the display names of the principals. No proof covers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<bool>,
    /// True to add the decrypted reasons of the events. No proof covers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<bool>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Entries of other streams in a bundle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OtherEntries {
    /// Entries at all positions after the stream's last event. The bundle proves that the stream
    /// did not continue.
    #[default]
    After,
    /// Entries at all positions of the log. The completeness of the stream depends only on the
    /// signed root.
    All,
    /// No entries of other streams. The bundle does not prove that the stream did not continue.
    None,
}

/// Range of the log by position, time or both.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RangeQuery {
    /// First position of the range. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Last position of the range. Default: the head of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// Start of the recording time, inclusive.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub since: Option<DateTime<Utc>>,
    /// End of the recording time, exclusive.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub until: Option<DateTime<Utc>>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}
