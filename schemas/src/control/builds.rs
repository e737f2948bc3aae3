//! Builds, which turn the source of a component into an artifact.
use chrono::{DateTime, Utc};
use domain::{
    artifact::Upstream,
    digest::Digest,
    git::GitSource,
    ids::{AppId, BuildId, ComponentId, JobId},
    image::ImageSource,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Waiting;
use crate::moment;

/// Attempt to build the artifact of a component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Build {
    /// Id of the build: `bld_` and a ULID.
    #[schema(value_type = String)]
    pub id: BuildId,
    /// Id of the app: `app_` and a ULID.
    #[schema(value_type = String)]
    pub app: AppId,
    /// Name of the app, which never changes.
    pub app_name: String,
    /// Id of the component: `cmp_` and a ULID.
    #[schema(value_type = String)]
    pub component: ComponentId,
    /// Name of the component in the config.
    pub component_name: String,
    /// Component type: `terraform_module`, or the name of a plugin.
    pub kind: String,
    /// Config version that requested the build. A later version may use the same build.
    pub config_version: u32,
    /// Digest of the component's source in the bundle, packed as a deterministic tar. Absent for a
    /// git source and for an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub source: Option<Digest>,
    /// Source in a git repository. Absent if the bundle contains the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// Image of an upstream registry that the build copies. Absent for other component types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSource>,
    /// Commit of the git source. Absent until the reference is resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Earlier build whose artifact this build uses, because its commit, directory and component
    /// type are the same. Absent if a job created the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reused_build: Option<BuildId>,
    /// State: `requested`, `resolving` (the git reference has no commit yet), `queued`, `running`,
    /// `succeeded` or `failed`.
    pub state: String,
    /// Id of the job of the build: `job_` and a ULID. Absent before the job is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub job: Option<JobId>,
    /// Built artifact. Present only if the build succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Stable code of the failure: `job_failed`, `job_cancelled`, `job_lost`, `no_artifact`,
    /// `render_failed` or `source_unresolved`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Explanation of the failure for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Condition that the job of the build waits for. Absent if the job does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Actor that requested the build, such as the publisher of the config version: `prn_…` or
    /// `system`. Absent in a response of an earlier server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub requested_by: String,
    /// Display name of the requester. Absent if the requester has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by_name: Option<String>,
    /// Time when the build was requested.
    #[serde(with = "moment")]
    pub requested_at: DateTime<Utc>,
    /// Time when the build ended. Absent before the end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub ended_at: Option<DateTime<Utc>>,
}

/// Immutable output of a build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Artifact {
    /// Repository in the server's registry, `<app>/<component>`.
    pub repository: String,
    /// Digest of the OCI manifest, or of the index of an image with several platforms.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Total size in bytes: the OCI manifest and the blobs that it references.
    pub size_bytes: u64,
    /// Image in the upstream registry that the artifact is a copy of. Absent for other artifacts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
}

/// Result of a retry of failed builds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BuildsRetried {
    /// Id of the app: `app_` and a ULID.
    #[schema(value_type = String)]
    pub app: AppId,
    /// New config version, with the same bundle and the new builds.
    pub version: u32,
    /// New builds, one for each component whose build had failed.
    pub builds: Vec<super::apps::BuildRequested>,
    /// Log position of the change. A read with this `min_position` includes the change.
    pub position: u64,
}

/// Filters and pagination of builds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BuildsQuery {
    /// Filter by the name or id of an app.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// Filter by state: `requested`, `resolving`, `queued`, `running`, `succeeded` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Maximum number of items, 1 to 200. Default: 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Pagination cursor: `next` of the previous page. Default: the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}
