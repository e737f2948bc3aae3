//! The Control API on the wire: what people, services, the CLI and the dashboard say and hear.
//!
//! Rules that hold for all of it: a request with a field that nobody knows is refused; an answer may
//! gain fields, so a client ignores what it does not know. Every answer to a change carries the
//! `position` after which the change is visible; a reader passes it as `min_position`. States are
//! open sets of words: a client shows a word that it does not know as it is.
pub mod apps;
pub mod audit;
pub mod builds;
pub mod bundles;
pub mod history;
pub mod installs;
pub mod jobs;
pub mod projections;
pub mod runners;
pub mod runs;
pub mod subjects;
pub mod tokens;

use domain::ids::{InstallId, JobId, RunId, RunnerId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A part of a list, and where the next part starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// At most `limit` of them.
    pub items: Vec<T>,
    /// Pass it as `cursor` for what follows. Absent: this was all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Everything there is, in one part.
    pub fn whole(items: Vec<T>) -> Self {
        Page { items, next: None }
    }
}

/// Which part of a list, and how fresh it must be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Listing {
    /// How many at most: 1 to 200. 50 when absent.
    #[param(minimum = 1, maximum = 200)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Where to go on: `next` of the part before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Wait (at most 5 s) until the answer includes this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// How fresh an answer about one thing must be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Fresh {
    /// Wait (at most 5 s) until the answer includes this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// It is done, or it was already so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Done {
    /// What was asked is visible in every read from this position on.
    pub position: u64,
    /// False: it was already so and nothing was written.
    pub changed: bool,
}

/// Why somebody does it, in their own words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonBody {
    /// At most 2,000 characters; kept in the log.
    #[schema(max_length = 2000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a thing that does not move is waiting for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// `runner`, `slot`, `reservation`, `approval`, `dependency`, `build`, `server`, `retry` or `resolution`.
    #[serde(rename = "for")]
    pub on: String,
    /// One sentence for a person, with what to do when something is to be done.
    pub detail: String,
    /// The job that is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub job: Option<JobId>,
    /// The run that is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// The install whose resource is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub install: Option<InstallId>,
    /// The runner that is awaited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub runner: Option<RunnerId>,
}

/// Something in a file that is wrong, or likely to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Diagnostic {
    /// `error` or `warning`.
    pub severity: String,
    /// Relative to the app directory.
    pub file: String,
    /// From 1. Absent: the file as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// From 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}
