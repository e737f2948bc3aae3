//! Queries for proof bundles and for ranges of the log.
use std::str::FromStr;

use chrono::{DateTime, Utc};
use domain::{
    access::Access,
    app::App,
    build::Build,
    component::Component,
    decider::Decider as _,
    enrolment::Enrolment,
    ids::{AppId, BuildId, ComponentId, EventId, JobId, PrincipalId, RunId, RunnerId, TokenId},
    job::Job,
    run::Run,
    runner::Runner,
};
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

impl BundleQuery {
    /// Query for the object that a user names: a position, an event id, a stream, an id, or the
    /// name or id of an install.
    #[must_use]
    pub fn of(what: &str) -> BundleQuery {
        let mut query = BundleQuery::default();
        if let Ok(position) = what.parse() {
            query.position = Some(position);
        } else if let Ok(event) = what.parse() {
            query.event = Some(event);
        } else if what.contains('/') {
            query.stream = Some(what.into());
        } else if let Some(kind) = kind(what) {
            query.stream = Some(format!("{kind}/{what}"));
        } else {
            query.install = Some(what.into());
        }
        query
    }
}

/// Aggregate type of an id. `None` for any other text, such as the id or the name of an install.
fn kind(text: &str) -> Option<&'static str> {
    fn is<I: FromStr>(text: &str) -> bool {
        text.parse::<I>().is_ok()
    }
    let kinds = [
        (is::<AppId>(text), App::NAME),
        (is::<ComponentId>(text), Component::NAME),
        (is::<BuildId>(text), Build::NAME),
        (is::<RunId>(text), Run::NAME),
        (is::<JobId>(text), Job::NAME),
        (is::<RunnerId>(text), Runner::NAME),
        (is::<PrincipalId>(text), Access::NAME),
        (is::<TokenId>(text), Enrolment::NAME),
    ];
    kinds.into_iter().find(|(is, _)| *is).map(|(_, kind)| kind)
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
