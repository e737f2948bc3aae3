//! Apps and their config versions.
use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    git::GitSource,
    ids::{AppId, BuildId, ComponentId, InstallId, JobId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Diagnostic;
use crate::moment;

/// App with a summary of its newest version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct App {
    /// Id of the app: `app_` and a ULID. The id never changes.
    #[schema(value_type = String)]
    pub id: AppId,
    /// Name of the app, unique on this server.
    pub name: String,
    /// Number of the newest config version. 0 if the app has never been synced.
    pub version: u32,
    /// Publication time of the newest version. Absent if the app has never been synced.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub published_at: Option<DateTime<Utc>>,
    /// Number of components of the newest version, including the sandbox.
    pub components: u64,
    /// Number of the app's installs.
    pub installs: u64,
}

/// Published config version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigVersion {
    /// Number of the version, from 1.
    pub version: u32,
    /// Digest of the bundle: the app directory as an uncompressed, deterministic tar.
    #[schema(value_type = String)]
    pub bundle: Digest,
    /// Time when the version was published.
    #[serde(with = "moment")]
    pub published_at: DateTime<Utc>,
    /// Actor that published the version: the id of a principal.
    pub published_by: String,
    /// Display name of the publisher. Absent if the publisher has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_by_name: Option<String>,
    /// Log position of the event `app.config_published`.
    pub position: u64,
    /// State of the git references: `resolving` until each one is resolved or failed, then
    /// `resolved`, or `unresolved` if one failed. `resolved` for a version without git references.
    pub state: String,
    /// Git references of the version. Each one is resolved to a commit once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<VersionSource>,
    /// Components of the version. The sandbox is the component `sandbox`.
    pub components: Vec<VersionComponent>,
}

/// Git reference of a config version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionSource {
    /// Address of the repository, as in the config.
    pub repo: String,
    /// Branch, tag or commit id. `HEAD` is the default branch.
    #[serde(rename = "ref")]
    pub reference: String,
    /// State: `resolving`, `resolved` or `failed`.
    pub state: String,
    /// Commit of the reference: 40 hexadecimal digits. Present only if the state is `resolved`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Explanation of the failure for users. Present only if the state is `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Job that resolves the reference: `job_` and a ULID. Present only while the job is queued or
    /// running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub job: Option<JobId>,
}

/// Config version with its parsed configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigVersionDetail {
    /// Number, digest and publication of the version.
    pub version: ConfigVersion,
    /// Parsed configuration: the same object that `stead apps inspect` prints for the app
    /// directory.
    pub config: Value,
}

/// Component of a config version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionComponent {
    /// Id of the component: `cmp_` and a ULID. The id is the same in every version.
    #[schema(value_type = String)]
    pub id: ComponentId,
    /// Name of the component, unique in the version.
    pub name: String,
    /// Component type: `terraform_module`, or the name of a plugin.
    pub kind: String,
    /// Digest of everything that defines the component: source, settings, files and plugin.
    #[schema(value_type = String)]
    pub definition: Digest,
    /// Source in a git repository. Absent if the bundle contains the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// Commit of the git source. Absent until the reference is resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// Publication mode of a sync.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SyncQuery {
    /// True to validate the bundle and return the diff without publishing a version. Default:
    /// false.
    pub dry_run: bool,
    /// Published version to compare the bundle with. Allowed only in a dry run. Default: the newest
    /// version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<u32>,
    /// True to resolve the git references again: an unchanged bundle with git references is
    /// published as the next version. Not allowed in a dry run. Default: false.
    pub resolve: bool,
}

/// Result of a sync or of a dry run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SyncReport {
    /// Id of the app: `app_` and a ULID. Absent in a dry run of a new app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub app: Option<AppId>,
    /// Name of the app from the path of the request.
    pub name: String,
    /// Config version of the bundle. In a dry run, the version that a sync would publish.
    pub version: u32,
    /// Digest of the bundle: the app directory as an uncompressed, deterministic tar.
    #[schema(value_type = String)]
    pub bundle: Digest,
    /// True if the newest version already has this bundle, so that no version was published. Always
    /// false with `resolve` and a git reference.
    pub unchanged: bool,
    /// True if the request was a dry run, so that no version was published.
    pub dry_run: bool,
    /// Differences from the previous version, or from `against`.
    pub diff: Diff,
    /// Requested builds, one for each component with a new source or type, or with a failed build.
    /// Empty in a dry run.
    pub builds: Vec<BuildRequested>,
    /// Warnings about the bundle. The server rejects a bundle with errors.
    pub diagnostics: Vec<Diagnostic>,
    /// Log position of the change. A read with this `min_position` includes the change.
    pub position: u64,
}

/// Build that a sync or a retry requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BuildRequested {
    /// Id of the build: `bld_` and a ULID.
    #[schema(value_type = String)]
    pub id: BuildId,
    /// Name of the component to build.
    pub component: String,
}

/// Config versions to compare.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiffQuery {
    /// Number of the earlier version. Default: the version before `to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// Number of the later version. Default: the newest version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// Name or id of the only install whose impact to plan. Default: all installs of the app.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// Config version whose inputs to plan with: the inputs that `install` had when it last
    /// followed that version. Requires `install`. Default: the current inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs_of: Option<u32>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Differences between two config versions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    /// Number of the earlier version. Absent if the later version is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// Number of the later version. Absent in a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// Differences in this order: inputs, sandbox, components, actions, then other items sorted by
    /// kind.
    pub changes: Vec<Change>,
    /// Operations that the later version would cause in each install, oldest install first. Empty
    /// in the response to a sync that is not a dry run, because a sync does not change installs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub impact: Vec<Impact>,
    /// Number of installs that `impact` omits because of its limit. Absent if `impact` is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_installs: Option<u64>,
    /// Settings of the later version that this release parses but ignores, each with the effect.
    /// Present only in a comparison of published versions. The report of a sync has these settings
    /// in `diagnostics`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_settings: Vec<Diagnostic>,
}

/// Effect of a config version on one install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Impact {
    /// Id of the install: `ins_` and a ULID.
    #[schema(value_type = String)]
    pub install: InstallId,
    /// Name of the install, unique among the installs that are not deprovisioned.
    pub name: String,
    /// Config version that the install follows now.
    pub config_version: u32,
    /// True if the install has deployed resources. If false, `plans` contains all deploys that
    /// follow the enrolment of a runner.
    pub provisioned: bool,
    /// Operations on the sandbox and the components, in the planned order. Empty if the version
    /// causes no changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<PlannedOperation>,
    /// Explanation for users why the install cannot follow the version. Absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Inputs that had another value when the install last followed the later version. Present only
    /// if the request has `install`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputDifference>,
}

/// Input whose current value differs from its value when the install last followed the later
/// version of the diff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InputDifference {
    /// Name of the input in the config.
    pub name: String,
    /// Earlier value. Absent if the input was not set at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Current value. Absent if the input is not set now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Planned operation on a component or on the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedOperation {
    /// Name of the component, or `sandbox`.
    pub name: String,
    /// Operation: `apply` or `destroy`.
    pub operation: String,
}

/// Difference in one item of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// Type of the difference: `added`, `changed` or `removed`.
    pub change: String,
    /// Kind of the item, for example `component`, `input`, `sandbox` or `action`. The set is open.
    pub kind: String,
    /// Name of the item, unique within its kind.
    pub name: String,
    /// Fields with different values. Empty for an item that was added or removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
}

/// Field with different values. Both values are absent for source, files, plugins, environment
/// variables, and long or sensitive texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    /// Name of the field, for example its key in the config or the path of a file.
    pub field: String,
    /// Earlier value. Absent if the field did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Later value. Absent if the field no longer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
