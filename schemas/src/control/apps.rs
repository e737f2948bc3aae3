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
    /// Its id, for ever.
    #[schema(value_type = String)]
    pub id: AppId,
    /// Its name, unique on this server.
    pub name: String,
    /// The newest config version; 0: nothing has been synced yet.
    pub version: u32,
    /// When the newest version came.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub published_at: Option<DateTime<Utc>>,
    /// How many components the newest version has.
    pub components: u64,
    /// How many installs there are.
    pub installs: u64,
}

/// What was published under one number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigVersion {
    /// 1, 2, 3 …
    pub version: u32,
    /// The bundle that it is.
    #[schema(value_type = String)]
    pub bundle: Digest,
    /// When.
    #[serde(with = "moment")]
    pub published_at: DateTime<Utc>,
    /// By whom: an actor.
    pub published_by: String,
    /// What they are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_by_name: Option<String>,
    /// The position of `app.config_published`.
    pub position: u64,
    /// Its components, by name.
    pub components: Vec<VersionComponent>,
}

/// One config version, and everything that its directory says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigVersionDetail {
    /// Which, and who published it when.
    pub version: ConfigVersion,
    /// The same object that `stead apps inspect` prints of the directory.
    pub config: Value,
}

/// A component as one version has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionComponent {
    /// Its id, the same in every version.
    #[schema(value_type = String)]
    pub id: ComponentId,
    /// Its name in the app.
    pub name: String,
    /// Its type: `terraform_module`, or what a plugin calls it.
    pub kind: String,
    /// Of its definition and source together.
    #[schema(value_type = String)]
    pub definition: Digest,
}

/// How a sync is meant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SyncQuery {
    /// Check everything and say what would change; change nothing.
    pub dry_run: bool,
    /// Of a dry run: the published version to compare with. Absent: the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<u32>,
}

/// What a sync did, or would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Synced {
    /// The app. Absent: a dry run of an app that does not exist yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub app: Option<AppId>,
    /// Its name.
    pub name: String,
    /// The config version that this bundle is or would be.
    pub version: u32,
    /// The bundle.
    #[schema(value_type = String)]
    pub bundle: Digest,
    /// True: this bundle is the newest version already, and nothing was written.
    pub unchanged: bool,
    /// True: nothing was written because a dry run was asked for.
    pub dry_run: bool,
    /// Against the version before.
    pub diff: Diff,
    /// The builds that were requested: one for each component whose source is new.
    pub builds: Vec<BuildRequested>,
    /// Warnings; errors refuse the sync.
    pub diagnostics: Vec<Diagnostic>,
    /// Visible from here.
    pub position: u64,
}

/// A build that a sync caused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BuildRequested {
    /// The build.
    #[schema(value_type = String)]
    pub id: BuildId,
    /// Of which component.
    pub component: String,
}

/// Which two versions to compare.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiffQuery {
    /// The version before. Absent: the one before `to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// The version after. Absent: the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// Show the impact on this install only: its name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// Plan for that install with the inputs that it had when it last followed this config version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs_of: Option<u32>,
    /// Wait (at most 5 s) until the answer includes this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// What is different between two config versions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    /// Absent: from nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// Absent: to a bundle that is not published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// In the order: inputs, sandbox, components, actions, and then what surrounds them by kind.
    pub changes: Vec<Change>,
    /// Plans that the later version would cause in each install, oldest install first. Empty after a sync that is not a
    /// dry run: it moves no install.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub impact: Vec<Impact>,
    /// Number of installs that `impact` leaves out. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_installs: Option<u64>,
    /// Settings of the later version that this release reads and does not act on, with what happens instead. Only between
    /// published versions: a sync has them among its warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_acted_on: Vec<Diagnostic>,
}

/// Effect of a config version on one install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Impact {
    /// Which install.
    #[schema(value_type = String)]
    pub install: InstallId,
    /// Its name.
    pub name: String,
    /// The config version that it follows now.
    pub config_version: u32,
    /// False: nothing is deployed yet; everything is planned once its runner has enrolled.
    pub provisioned: bool,
    /// Planned operations, in order. Empty: no changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<Planned>,
    /// Why it cannot follow that version with the inputs that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Inputs that had another value when the install last followed the version after. Only where one install is asked
    /// for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputDifference>,
}

/// An input that had another value when an install last followed a config version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InputDifference {
    /// Its name.
    pub name: String,
    /// The value then. Absent: it was not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<String>,
    /// The value now. Absent: it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
}

/// A component, or the sandbox, that would be planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Planned {
    /// Its name; `sandbox` for the sandbox.
    pub name: String,
    /// `apply` or `destroy`.
    pub operation: String,
}

/// One thing that is different.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// `added`, `changed` or `removed`.
    pub change: String,
    /// What it is: `component`, `input`, `sandbox`, `action` …
    pub what: String,
    /// Its name.
    pub name: String,
    /// Which of its fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
}

/// One field that is different. Neither before nor after: it is other bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    /// Its path inside the thing.
    pub field: String,
    /// Absent: it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Absent: it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
