//! Control API types, shared by the server, the CLI, the dashboard and services.
//!
//! The server rejects a request with an unknown field. A response may gain fields, so a client must
//! ignore unknown fields. States are open sets: a client displays an unknown state unchanged.
//!
//! The response to a change has the `position` of the change in the log. A later read with this
//! value as `min_position` includes the change.
pub mod apps;
pub mod audit;
pub mod builds;
pub mod bundles;
pub mod history;
pub mod installs;
pub mod jobs;
pub mod plugins;
pub mod projections;
pub mod runners;
pub mod runs;
pub mod subjects;
pub mod tokens;
pub mod webhooks;

use domain::ids::{InstallId, JobId, RunId, RunnerId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Page of a list, with the cursor of the next page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// Items of the page, at most `limit` of the request.
    pub items: Vec<T>,
    /// Cursor of the next page, for the `cursor` parameter. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Returns a page with all items and without a next page.
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
    /// Pagination cursor: `next` of the previous page. Default: the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Result of an idempotent change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangeResult {
    /// Log position of the change. A read with this `min_position` includes the change.
    pub position: u64,
    /// True if the request changed the state. False if the state was already as requested.
    pub changed: bool,
}

/// Optional reason for a change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonBody {
    /// Reason for the change, at most 2,000 characters. The log stores the reason.
    #[schema(max_length = 2000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Condition that a step, job or build waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// Stable code of the condition: `runner`, `slot`, `reservation`, `approval`, `dependency`,
    /// `build`, `preflight`, `plans`, `server`, `retry`, `state` or `resolution`.
    #[serde(rename = "for")]
    pub on: String,
    /// Explanation for users, with the required action, if any.
    pub detail: String,
    /// Id of the job that the condition concerns: `job_` and a ULID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub job: Option<JobId>,
    /// Id of the run that the condition concerns: `run_` and a ULID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// Id of the install that the condition concerns: `ins_` and a ULID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub install: Option<InstallId>,
    /// Id of the runner that the condition concerns: `rnr_` and a ULID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub runner: Option<RunnerId>,
}

/// Error or warning about a file of the app directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Diagnostic {
    /// Severity: `error` or `warning`.
    pub severity: String,
    /// Path relative to the app directory.
    pub file: String,
    /// Line number, from 1. Absent if the diagnostic concerns the whole file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Column number, from 1. Absent if the diagnostic concerns the whole line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Description of the error or warning for users.
    pub message: String,
    /// Suggested fix. Absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}
