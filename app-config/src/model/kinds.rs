//! Settings of each kind of component.
use std::collections::BTreeMap;

use domain::image::{DEFAULT_PLATFORM, ImageReference, ImageSource};
use serde::Serialize;

use crate::text::{Origin, Text};

/// Settings besides module and variables, by kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(tag = "spec", rename_all = "snake_case")]
pub enum Spec {
    /// No further settings.
    #[default]
    TerraformModule,
    HelmChart(HelmChart),
    KubernetesManifest(KubernetesManifest),
    Image(Image),
    DockerBuild(DockerBuild),
    Pulumi(Pulumi),
    Job(Job),
    /// Settings of a plugin, which only the plugin can validate.
    Plugin,
}

impl Spec {
    /// Returns the kustomization of a `kubernetes_manifest`.
    pub fn kustomize(&self) -> Option<&Kustomize> {
        match self {
            Spec::KubernetesManifest(manifest) => manifest.kustomize.as_ref(),
            Spec::TerraformModule
            | Spec::HelmChart(_)
            | Spec::Image(_)
            | Spec::DockerBuild(_)
            | Spec::Pulumi(_)
            | Spec::Job(_)
            | Spec::Plugin => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct HelmChart {
    pub chart_name: Text,
    /// Namespace. `None` means the id of the install.
    pub namespace: Option<Text>,
    pub helm_repo: Option<HelmRepo>,
    pub values: BTreeMap<String, Text>,
    /// Values files. A later file overrides earlier ones.
    pub values_files: Vec<Text>,
    pub storage_driver: Option<Text>,
    /// True if a deploy may adopt existing objects and an existing release.
    pub take_ownership: bool,
    /// Fields of objects, by the name of the output.
    pub outputs: BTreeMap<String, OutputField>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct HelmRepo {
    pub repo_url: String,
    pub chart: String,
    pub version: Option<String>,
}

/// A manifest, or a kustomization in the module directory.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct KubernetesManifest {
    pub namespace: Option<Text>,
    pub manifest: Option<Text>,
    pub kustomize: Option<Kustomize>,
    /// True if a deploy may adopt existing objects.
    pub take_ownership: bool,
    /// Fields of objects, by the name of the output.
    pub outputs: BTreeMap<String, OutputField>,
}

/// Field of an object that becomes an output of its component.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct OutputField {
    pub kind: String,
    pub name: Text,
    pub namespace: Option<Text>,
    /// Path such as `status.loadBalancer.ingress[0].hostname`.
    pub field: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Kustomize {
    /// Path in the component's repository.
    pub path: String,
    pub patches: Vec<String>,
    pub enable_helm: bool,
    /// YAML files of a kustomization in the app directory, by path in the component's source.
    #[serde(skip)]
    pub files: BTreeMap<String, Text>,
}

/// An existing image.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Image {
    pub image_url: String,
    pub tag: String,
    /// Private registry in AWS.
    pub ecr: Option<Ecr>,
    /// Platforms to copy. Empty means [`DEFAULT_PLATFORM`].
    pub platforms: Vec<String>,
}

impl Image {
    /// Returns the image to copy. `None` if the reference is not valid.
    pub fn source(&self) -> Option<ImageSource> {
        let reference = ImageReference::new(&self.image_url, &self.tag).ok()?.to_string();
        let platforms = match self.platforms.is_empty() {
            true => vec![DEFAULT_PLATFORM.to_owned()],
            false => self.platforms.clone(),
        };
        Some(ImageSource { reference, platforms })
    }
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

/// Settings that every kind accepts. This release does not act on all of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Options {
    pub max_auto_retries: Option<i64>,
    pub timeout_ms: Option<u64>,
    pub deploy_timeout_ms: Option<u64>,
    /// True if an install may run without the component.
    pub toggleable: bool,
    pub default_enabled: Option<bool>,
    /// If absent or true, a plan without changes ends the step. If false, such a plan also needs
    /// approval and is applied.
    pub skip_noops: Option<bool>,
    pub auto_approve_on_policies_passing: bool,
    pub kubernetes_context: Option<String>,
    pub operation_roles: Vec<OperationRole>,
    pub labels: BTreeMap<String, Text>,
}

/// Maximum number of automatic retries of a step.
pub const MAX_RETRIES: i64 = 10;

/// Clamps a number of automatic retries into the valid range. An absent setting means none.
pub fn bounded_retries(setting: Option<i64>) -> u32 {
    setting.map_or(0, |most| most.clamp(0, MAX_RETRIES)).try_into().unwrap_or_default()
}

impl Options {
    /// Number of automatic retries that this release performs.
    pub fn auto_retries(&self) -> u32 {
        bounded_retries(self.max_auto_retries)
    }

    /// True if installs may enable and disable the component. `default_enabled` implies
    /// `toggleable`.
    pub fn is_toggleable(&self) -> bool {
        self.toggleable || self.default_enabled.is_some()
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct OperationRole {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    /// `nuon::sandbox` or `nuon::component:NAME`. `None` means the part that has the setting.
    pub principal: Option<String>,
    pub operation: String,
    pub role: Text,
}
