//! Apps and their config versions.
use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, InstallId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Diagnostic;
use crate::moment;

/// An app in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct App {
    /// Id of the app. It never changes.
    #[schema(value_type = String)]
    pub id: AppId,
    /// Name of the app, unique on this server.
    pub name: String,
    /// Number of the newest config version. 0 if the app has never been synced.
    pub version: u32,
    /// Time when the newest version was published.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub published_at: Option<DateTime<Utc>>,
    /// Number of components in the newest version.
    pub components: u64,
    /// Number of installs.
    pub installs: u64,
}

/// Published config version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigVersion {
    /// Number of the version, from 1.
    pub version: u32,
    /// Digest of the bundle.
    #[schema(value_type = String)]
    pub bundle: Digest,
    /// Time of publication.
    #[serde(with = "moment")]
    pub published_at: DateTime<Utc>,
    /// Actor that published the version.
    pub published_by: String,
    /// Display name of the publisher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_by_name: Option<String>,
    /// Position of `app.config_published`.
    pub position: u64,
    /// Components, sorted by name.
    pub components: Vec<VersionComponent>,
}

/// Config version with the content of its directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigVersionDetail {
    /// The version.
    pub version: ConfigVersion,
    /// Parsed configuration, the object that `stead apps inspect` prints for the directory.
    pub config: Value,
}

/// Component of a config version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionComponent {
    /// Id of the component, the same in every version.
    #[schema(value_type = String)]
    pub id: ComponentId,
    /// Name of the component in the app.
    pub name: String,
    /// Component type: `terraform_module`, or a type that a plugin defines.
    pub kind: String,
    /// Digest of the definition and the source together.
    #[schema(value_type = String)]
    pub definition: Digest,
}

/// Options of a sync.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SyncQuery {
    /// Validate the bundle and return the diff without writing anything.
    pub dry_run: bool,
    /// Published version to compare with in a dry run. Default: the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<u32>,
}

/// Result of a sync or of a dry run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SyncReport {
    /// Id of the app. Absent in a dry run of a new app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub app: Option<AppId>,
    /// Name of the app.
    pub name: String,
    /// Config version that this bundle has, or would get.
    pub version: u32,
    /// Digest of the bundle.
    #[schema(value_type = String)]
    pub bundle: Digest,
    /// True if this bundle is already the newest version. Then nothing was written.
    pub unchanged: bool,
    /// True if this was a dry run. Then nothing was written.
    pub dry_run: bool,
    /// Diff against the previous version.
    pub diff: Diff,
    /// Requested builds, one for each component with a new source.
    pub builds: Vec<BuildRequested>,
    /// Warnings. The server rejects a sync with errors.
    pub diagnostics: Vec<Diagnostic>,
    /// Position after which reads include the change.
    pub position: u64,
}

/// Build that a sync or a retry of builds requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BuildRequested {
    /// Id of the build.
    #[schema(value_type = String)]
    pub id: BuildId,
    /// Name of the component.
    pub component: String,
}

/// Config versions to compare.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiffQuery {
    /// Earlier version. Default: the one before `to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// Later version. Default: the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// Install to which the impact is limited, name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// Config version whose inputs to use. The install's plan uses the inputs that it had when it
    /// last followed this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs_of: Option<u32>,
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Differences between two config versions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    /// Earlier version. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// Later version. Absent if the bundle is not published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// Changes in this order: inputs, sandbox, components, actions, then the rest by kind.
    pub changes: Vec<Change>,
    /// Plans that the later version would cause in each install, oldest install first. Empty after
    /// a sync that is not a dry run, because a sync does not change the version of installs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub impact: Vec<Impact>,
    /// Number of installs that `impact` omits. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_installs: Option<u64>,
    /// Settings of the later version that this release parses but ignores, with the effect. Present
    /// only between published versions. A sync reports them among its warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_acted_on: Vec<Diagnostic>,
}

/// Effect of a config version on one install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Impact {
    /// Id of the install.
    #[schema(value_type = String)]
    pub install: InstallId,
    /// Name of the install.
    pub name: String,
    /// Config version that the install follows now.
    pub config_version: u32,
    /// True if the install has deployed resources. If false, `plans` deploys everything, after a
    /// runner has enrolled.
    pub provisioned: bool,
    /// Planned operations, in order. Empty: no changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<PlannedOperation>,
    /// Reason why the install cannot follow that version with its current inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Inputs with another value when the install last followed the later version. Present only in
    /// a request for one install.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputDifference>,
}

/// Input whose value differs from the time when the install last followed a config version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InputDifference {
    /// Name of the input.
    pub name: String,
    /// Earlier value. Absent if the input was not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<String>,
    /// Current value. Absent if the input is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
}

/// Planned operation on a component or on the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedOperation {
    /// Name of the component. `sandbox` for the sandbox.
    pub name: String,
    /// Operation, `apply` or `destroy`.
    pub operation: String,
}

/// Difference in one item of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// Type of the change: `added`, `changed` or `removed`.
    pub change: String,
    /// Kind of the item: `component`, `input`, `sandbox`, `action` …
    pub what: String,
    /// Name of the item.
    pub name: String,
    /// Changed fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
}

/// Changed field. If neither value is present, the field's content differs and is not text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    /// Path of the field inside the item.
    pub field: String,
    /// Earlier value. Absent if the field did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Later value. Absent if the field no longer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
