//! Queries of proof bundles and log ranges.
use chrono::{DateTime, Utc};
use domain::ids::EventId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::moment;

/// What to prove: one of `install`, `stream`, `position` and `event`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BundleQuery {
    /// All events of the install of this name or id, of its runs, of their jobs and builds, and of the runners that
    /// ran the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// All events of `<aggregate type>/<aggregate id>`; an install's or an app's name will do instead of its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// The event at this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The event of this id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    pub event: Option<EventId>,
    /// Earlier signed checkpoint: the bundle then also proves that this log continues it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prior_checkpoint: Option<String>,
    /// Entries of other streams to add. `after` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub other_entries: Option<OtherEntries>,
    /// Replace payloads, metadata and salts by their hashes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hashes_only: Option<bool>,
    /// Add the display names of the principals in it. No proof covers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<bool>,
    /// Add the decrypted reasons of its events. No proof covers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<bool>,
    /// Wait (at most 5 s) until the answer includes this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Entries of other streams in a bundle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OtherEntries {
    /// Every position after the stream's last event: proves that the stream did not continue.
    #[default]
    After,
    /// Every position of the log: completeness depends on the signed root only.
    All,
    /// None: does not prove that the stream did not continue.
    None,
}

/// Which part of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RangeQuery {
    /// From this position. The first when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Up to this position. The last when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// Events recorded at or after this time.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub since: Option<DateTime<Utc>>,
    /// Events recorded before this time.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub until: Option<DateTime<Utc>>,
    /// Wait (at most 5 s) until the answer includes this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}
