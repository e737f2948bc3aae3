//! Queries of proof bundles and log ranges.
use chrono::{DateTime, Utc};
use domain::ids::EventId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::moment;

/// Subject of a bundle. Exactly one of `install`, `stream`, `position` and `event` is required.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BundleQuery {
    /// Install, name or id. Selects all events of the install, its runs, their jobs and builds, and
    /// the runners that ran the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// Stream whose events to include, `<aggregate type>/<aggregate id>`. The name of an install or
    /// an app is accepted in place of its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Position of one event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Id of one event.
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
    /// True to add the display names of the principals. No proof covers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<bool>,
    /// True to add the decrypted reasons of the events. No proof covers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<bool>,
    /// Position that the response must include. The server waits for it for at most 5 s.
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

/// Range of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RangeQuery {
    /// First position. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Last position. Default: the head of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// Events recorded at or after this time.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub since: Option<DateTime<Utc>>,
    /// Events recorded before this time.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub until: Option<DateTime<Utc>>,
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}
