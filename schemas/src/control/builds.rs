//! Builds: from a component's source to an artifact.
use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, JobId},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Waiting;
use crate::moment;

/// One attempt to make an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Build {
    /// Its id.
    #[schema(value_type = String)]
    pub id: BuildId,
    /// Of which app.
    #[schema(value_type = String)]
    pub app: AppId,
    /// The app's name.
    pub app_name: String,
    /// Of which component.
    #[schema(value_type = String)]
    pub component: ComponentId,
    /// The component's name.
    pub component_name: String,
    /// Its type.
    pub kind: String,
    /// For which config version it was first wanted.
    pub config_version: u32,
    /// What it is made from.
    #[schema(value_type = String)]
    pub source: Digest,
    /// `requested`, `queued`, `running`, `succeeded` or `failed`.
    pub state: String,
    /// The job that does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub job: Option<JobId>,
    /// What came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the one who failed it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// When it was asked for.
    #[serde(with = "moment")]
    pub requested_at: DateTime<Utc>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub ended_at: Option<DateTime<Utc>>,
}

/// The immutable output of a build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Artifact {
    /// `<app>/<component>` in the vendor's registry.
    pub repository: String,
    /// Of its OCI manifest.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Of all of it.
    pub size_bytes: u64,
}

/// What failed is built again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BuildsRetried {
    /// Of which app.
    #[schema(value_type = String)]
    pub app: AppId,
    /// The config version that has the new builds.
    pub version: u32,
    /// One for each component whose build had failed.
    pub builds: Vec<super::apps::BuildRequested>,
    /// Visible from here.
    pub position: u64,
}

/// Which builds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BuildsQuery {
    /// Of one app: its name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// In one state: `requested`, `queued` (a build that runs is queued, too), `succeeded` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// See the list parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// See the list parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// See the list parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}
