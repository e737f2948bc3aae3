//! Control API types, shared by the server, the CLI, the dashboard and services.
//!
//! The server rejects a request with an unknown field. A response may gain fields, so a client
//! ignores unknown ones.
//!
//! Every response to a change carries the `position` after which the change is visible. A reader
//! passes it as `min_position`. States are open sets: a client displays an unknown state unchanged.
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

/// Page of a list, with the cursor of the next page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// Items of the page, at most `limit`.
    pub items: Vec<T>,
    /// Cursor of the next page, for the `cursor` parameter. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Returns a single page that holds all items.
    pub fn whole(items: Vec<T>) -> Self {
        Page { items, next: None }
    }
}

/// Pagination and freshness parameters of a list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Maximum number of items, 1 to 200. Default: 50.
    #[param(minimum = 1, maximum = 200)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Pagination cursor, the `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Freshness parameter of a read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MinPositionQuery {
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Result of an idempotent change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangeResult {
    /// Position after which reads include the change.
    pub position: u64,
    /// True if the request changed anything. False if the state was already as requested.
    pub changed: bool,
}

/// Optional reason for a change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonBody {
    /// Reason, at most 2,000 characters. The server stores it in the log.
    #[schema(max_length = 2000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Condition that a run, step, job or build waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// `runner`, `slot`, `reservation`, `approval`, `dependency`, `build`, `server`, `retry` or `resolution`.
    #[serde(rename = "for")]
    pub on: String,
    /// One sentence for a user, with the required action, if any.
    pub detail: String,
    /// Id of the blocking job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub job: Option<JobId>,
    /// Id of the blocking run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// Id of the install whose resource is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub install: Option<InstallId>,
    /// Id of the required runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub runner: Option<RunnerId>,
}

/// Error or warning about a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Diagnostic {
    /// Severity: `error` or `warning`.
    pub severity: String,
    /// Path relative to the app directory.
    pub file: String,
    /// Line number, from 1. Absent if the finding concerns the file as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Column number, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Description of the problem.
    pub message: String,
    /// Suggested fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}
