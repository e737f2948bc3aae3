//! What the kinds of components have of their own.
use std::collections::BTreeMap;

use serde::Serialize;

use crate::text::{Origin, Text};

/// What a component says beyond module and variables, by its kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(tag = "spec", rename_all = "snake_case")]
pub enum Spec {
    /// Nothing more: its module and variables are all.
    #[default]
    TerraformModule,
    HelmChart(HelmChart),
    KubernetesManifest(KubernetesManifest),
    Image(Image),
    DockerBuild(DockerBuild),
    Pulumi(Pulumi),
    Job(Job),
    /// A plugin's own; only the plugin can judge it.
    Plugin,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct HelmChart {
    pub chart_name: String,
    /// Absent means the install's id.
    pub namespace: Option<Text>,
    pub helm_repo: Option<HelmRepo>,
    pub values: BTreeMap<String, Text>,
    /// In the order in which later ones win.
    pub values_files: Vec<Text>,
    pub storage_driver: Option<Text>,
    pub take_ownership: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct HelmRepo {
    pub repo_url: String,
    pub chart: String,
    pub version: Option<String>,
}

/// Either a text or a kustomization of the module directory.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct KubernetesManifest {
    pub namespace: Option<Text>,
    pub manifest: Option<Text>,
    pub kustomize: Option<Kustomize>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Kustomize {
    /// In the component's repository.
    pub path: String,
    pub patches: Vec<String>,
    pub enable_helm: bool,
}

/// An image that others built; the runner copies it into the account.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Image {
    pub image_url: String,
    pub tag: String,
    /// Of a private registry of AWS.
    pub ecr: Option<Ecr>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Ecr {
    pub iam_role_arn: String,
    pub region: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct DockerBuild {
    pub dockerfile: String,
    pub target: Option<String>,
    pub build_args: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Pulumi {
    pub runtime: String,
    pub config: BTreeMap<String, Text>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Job {
    pub image_url: String,
    pub tag: String,
    pub cmd: Vec<String>,
    pub args: Vec<String>,
}

/// What a component may say whatever its kind. A later release acts on it, but for the timeouts.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Options {
    pub max_auto_retries: Option<i64>,
    pub timeout_ms: Option<u64>,
    pub deploy_timeout_ms: Option<u64>,
    /// Whether an install may be without it.
    pub toggleable: bool,
    pub default_enabled: Option<bool>,
    /// Absent or true: a plan without changes ends its step. False: it is approved and applied.
    pub skip_noops: Option<bool>,
    pub auto_approve_on_policies_passing: bool,
    pub kubernetes_context: Option<String>,
    pub operation_roles: Vec<OperationRole>,
    pub labels: BTreeMap<String, Text>,
}

/// Most automatic retries of one step.
pub const MOST_RETRIES: i64 = 10;

/// Number of automatic retries of a setting that may be out of range.
pub fn bounded_retries(setting: Option<i64>) -> u32 {
    setting.map_or(0, |most| most.clamp(0, MOST_RETRIES)).try_into().unwrap_or_default()
}

impl Options {
    /// Number of automatic retries, as far as this release does them.
    pub fn auto_retries(&self) -> u32 {
        bounded_retries(self.max_auto_retries)
    }

    /// Whether installs may enable and disable the component. A `default_enabled` implies it.
    pub fn is_toggleable(&self) -> bool {
        self.toggleable || self.default_enabled.is_some()
    }
}

/// Which role an operation takes.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct OperationRole {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    /// Of whom: `nuon::sandbox`, `nuon::component:NAME`; absent for the part that says it.
    pub principal: Option<String>,
    pub operation: String,
    pub role: Text,
}
