//! What an app directory says, typed. Everything is in a fixed order (by name, or as written where
//! order means something), so that two readings of the same bytes are equal.
use std::collections::BTreeMap;

use domain::digest::Digest;
use serde::Serialize;
use serde_json::Value;

use crate::{
    text::{Origin, Span, Spans, Text},
    tree::PluginPin,
};

mod actions;
mod around;
mod inputs;
mod kinds;
mod stack;

pub use self::{
    actions::{Action, ActionStep, Runbook, RunbookStep, Trigger, TriggerKind},
    around::{Branch, Installer, KubernetesContext, OperationRoles},
    inputs::{Input, InputGroup, InputKind},
    kinds::{
        DockerBuild, Ecr, HelmChart, HelmRepo, Image, Job, KubernetesManifest, Kustomize,
        MOST_RETRIES, OperationRole, Options, Pulumi, Spec, bounded_retries,
    },
    stack::{
        CloudGrants, InstallFile, Metadata, NestedStack, Policy, Role, RolePolicy, RolePurpose,
        Runner, Secret, Stack, SyncTarget,
    },
};

/// The kind that this release deploys itself; every other kind is a plugin's name.
pub const TERRAFORM_MODULE: &str = "terraform_module";

/// Kinds of the format that wait for a plugin, and what that plugin deals with.
pub(crate) const LATER: [(&str, &str); 9] = [
    ("helm_chart", "Kubernetes"),
    ("kubernetes_manifest", "Kubernetes"),
    ("docker_build", "container images"),
    ("container_image", "container images"),
    ("external_image", "container images"),
    ("pulumi", "Pulumi"),
    ("terraform_stack", "Terraform stacks"),
    ("opentofu_module", "OpenTofu"),
    ("job", "jobs"),
];

/// One app, as its directory describes it.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct AppConfig {
    pub metadata: Metadata,
    pub input_groups: Vec<InputGroup>,
    /// By name.
    pub inputs: Vec<Input>,
    pub sandbox: Option<Sandbox>,
    pub runner: Option<Runner>,
    pub stack: Option<Stack>,
    pub roles: Vec<Role>,
    pub policies: Vec<Policy>,
    pub secrets: Vec<Secret>,
    /// By name.
    pub components: Vec<Component>,
    /// By name.
    pub actions: Vec<Action>,
    pub runbooks: Vec<Runbook>,
    /// Installs that the directory itself describes.
    pub installs: Vec<InstallFile>,
    /// Where installs are described, when it is elsewhere.
    pub installs_elsewhere: Option<Source>,
    pub operation_roles: Option<OperationRoles>,
    pub kubernetes_contexts: Vec<KubernetesContext>,
    pub branches: Vec<Branch>,
    pub installer: Option<Installer>,
    /// Plugins that the bundle pins, by name.
    pub plugins: Vec<PluginPin>,
    /// Every `./file` that a content key names.
    pub file_refs: Vec<FileRef>,
    /// Where every value of every file is written.
    #[serde(skip)]
    pub spans: Spans,
    /// What the models above leave out, for the difference between two versions.
    #[serde(skip)]
    pub(crate) beside: Beside,
}

/// Keys that are read without being acted on: by file and key path, what they say.
pub(crate) type Beside = BTreeMap<String, BTreeMap<String, Value>>;

impl AppConfig {
    pub fn component(&self, name: &str) -> Option<&Component> {
        self.components.iter().find(|c| c.name == name)
    }

    pub fn action(&self, name: &str) -> Option<&Action> {
        self.actions.iter().find(|a| a.name == name)
    }

    pub fn input(&self, name: &str) -> Option<&Input> {
        self.inputs.iter().find(|i| i.name == name)
    }

    pub fn plugin(&self, name: &str) -> Option<&PluginPin> {
        self.plugins.iter().find(|p| p.name == name)
    }

    /// Why a component, or the sandbox, cannot be deployed although it is published: nothing here
    /// knows its type.
    pub fn lacks_plugin(&self, name: &str) -> Option<String> {
        let base = self.sandbox.as_ref().filter(|_| name == crate::tree::SANDBOX);
        let module = base.map(|base| &base.module);
        let module = module.or_else(|| self.component(name).map(|component| &component.module))?;
        let kind = module.kind.as_str();
        if kind == TERRAFORM_MODULE || self.plugin(kind).is_some() {
            return None;
        }
        let means = LATER.iter().find(|(known, _)| *known == kind).map(|(_, means)| *means);
        let deals = means.map(|means| format!(", which deals with {means}")).unwrap_or_default();
        Some(format!(
            "`{name}` is of type `{kind}`, and the plugin `{kind}`{deals}, is missing: pin one of yours \
             (stead apps sync DIR --plugin {kind}=PATH), or make it a `{TERRAFORM_MODULE}`"
        ))
    }

    /// Where a value is written: `at` is of the part that has it, `key` its key there, `steps.0.name`
    /// for what is deeper. Empty means the part itself.
    pub fn span(&self, at: &Origin, key: &str) -> Option<Span> {
        self.spans.of(at, key)
    }

    /// The module directories that a bundle of this config needs, by component name and
    /// [`crate::tree::SANDBOX`].
    pub fn sources(&self) -> BTreeMap<&str, &Source> {
        let sandbox = self.sandbox.iter().map(|s| (crate::tree::SANDBOX, &s.module));
        let components = self.components.iter().map(|c| (c.name.as_str(), &c.module));
        sandbox
            .chain(components)
            .filter_map(|(name, module)| module.source.as_ref().map(|source| (name, source)))
            .collect()
    }
}

/// What a component and the sandbox have in common: a module and what it is given.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Module {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    /// [`TERRAFORM_MODULE`], a plugin's name, or a kind that a later release brings.
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terraform_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    pub vars: BTreeMap<String, Text>,
    pub env_vars: BTreeMap<String, Text>,
    /// Contents of variable files, in the order in which later ones win.
    pub var_files: Vec<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_schedule: Option<String>,
    pub spec: Spec,
    pub options: Options,
    /// The whole file as it was written, as JSON, for a plugin and for the diff.
    pub settings: Value,
    /// Every text in it that may hold a template, the files it names included.
    #[serde(skip)]
    pub texts: Vec<Text>,
    /// The content files it names, by path, with the digest of their bytes.
    pub files: BTreeMap<String, Digest>,
    /// The digest of the module directory; absent when the bundle holds none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_digest: Option<Digest>,
    /// Changes exactly when something that this config says about the module changes: its source,
    /// its settings, the files it names, its plugin. Not when an input's value changes.
    pub digest: Option<Digest>,
}

/// Keys of a module that mean the same for every kind, and are nothing of a plugin's own.
const COMMON_KEYS: [&str; 26] = [
    "auto_approve_on_policies_passing",
    "connected_repo",
    "default_enabled",
    "dependencies",
    "deploy_timeout",
    "description",
    "display_name",
    "drift_schedule",
    "env_vars",
    "helm_repo",
    "kubernetes_context",
    "label",
    "labels",
    "max_auto_retries",
    "name",
    "operation_roles",
    "public_repo",
    "role",
    "runtime",
    "skip_noops",
    "timeout",
    "toggleable",
    "type",
    "var_file",
    "var_name",
    "vars",
];

impl Module {
    /// What a plugin's component says beside what every kind has, as it was written; none for a kind that this
    /// release deploys itself.
    pub fn own_settings(&self) -> Option<Value> {
        if self.kind == TERRAFORM_MODULE {
            return None;
        }
        let mut own = self.settings.as_object().cloned().unwrap_or_default();
        own.retain(|key, _| !COMMON_KEYS.contains(&key.as_str()));
        Some(Value::Object(own))
    }
}

/// One deployable part.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Component {
    pub name: String,
    /// The file that describes it.
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub var_name: Option<String>,
    /// As declared; what it depends on by reading is in [`crate::refs::Graph`].
    pub dependencies: Vec<String>,
    #[serde(flatten)]
    pub module: Module,
}

/// The base under all components.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Sandbox {
    #[serde(flatten)]
    pub module: Module,
}

/// Where a module directory comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Source {
    /// `OWNER/NAME`, or `.` for the app directory itself.
    pub repo: String,
    /// Relative to the top of the repository; `.` is its top.
    pub directory: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Whether it needs the vendor's own access (`connected_repo`).
    pub connected: bool,
}

/// One content key that names a file of the app directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FileRef {
    /// The file that names it.
    pub file: String,
    pub reference: String,
    /// Path in the app directory; absent when there is no such file.
    pub resolved: Option<String>,
}
