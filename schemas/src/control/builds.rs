//! Builds, which turn the source of a component into an artifact.
use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, JobId},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Waiting;
use crate::moment;

/// Attempt to build an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Build {
    /// Id of the build.
    #[schema(value_type = String)]
    pub id: BuildId,
    /// Id of the app.
    #[schema(value_type = String)]
    pub app: AppId,
    /// Name of the app.
    pub app_name: String,
    /// Id of the component.
    #[schema(value_type = String)]
    pub component: ComponentId,
    /// Name of the component.
    pub component_name: String,
    /// Type of the component.
    pub kind: String,
    /// First config version that required the build.
    pub config_version: u32,
    /// Digest of the source.
    #[schema(value_type = String)]
    pub source: Digest,
    /// State: `requested`, `queued`, `running`, `succeeded` or `failed`.
    pub state: String,
    /// Id of the job that executes the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub job: Option<JobId>,
    /// Built artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Failure reason, a stable code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Failure message of the runner or the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Condition that the build waits for. Absent if the build does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Time of the request.
    #[serde(with = "moment")]
    pub requested_at: DateTime<Utc>,
    /// Time of the end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub ended_at: Option<DateTime<Utc>>,
}

/// Immutable output of a build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Artifact {
    /// Repository in the vendor's registry, `<app>/<component>`.
    pub repository: String,
    /// Digest of the OCI manifest.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Total size in bytes.
    pub size_bytes: u64,
}

/// Result of a retry of failed builds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BuildsRetried {
    /// Id of the app.
    #[schema(value_type = String)]
    pub app: AppId,
    /// Config version that has the new builds.
    pub version: u32,
    /// New builds, one for each component whose build had failed.
    pub builds: Vec<super::apps::BuildRequested>,
    /// Position after which reads include the change.
    pub position: u64,
}

/// Filters and pagination of builds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BuildsQuery {
    /// Filter by app, name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// Filter by state: `requested`, `queued` (includes running builds), `succeeded` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Maximum number of items, 1 to 200. Default: 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Pagination cursor, the `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}
