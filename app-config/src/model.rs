//! Typed contents of an app directory. The order of every list depends only on the bytes, so that
//! two reads of the same bytes are equal.
use std::collections::{BTreeMap, BTreeSet};

use domain::{
    digest::Digest,
    git::{self, GitSource},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    text::{Origin, Span, Spans, Text},
    tree::{PluginPin, SANDBOX},
};

mod actions;
mod inputs;
mod kinds;
mod scripts;
mod stack;
mod usage;

pub use self::{
    actions::{Action, ActionStep, Runbook, RunbookStep, Trigger, TriggerKind},
    inputs::{Input, InputGroup, InputKind},
    kinds::{
        DockerBuild, Ecr, HelmChart, HelmRepo, Image, Job, KubernetesManifest, Kustomize,
        MAX_RETRIES, OperationRole, Options, OutputField, Pulumi, Spec, bounded_retries,
    },
    scripts::{ACTION_SCRIPTS, ScriptSource, script_sources},
    stack::{
        CloudGrants, InstallFile, Metadata, NestedStack, Policy, Role, RolePolicy, RolePurpose,
        Runner, Secret, Stack, SyncTarget,
    },
    usage::{Branch, Installer, KubernetesContext, OperationRoles, SANDBOX_CONTEXTS},
};

/// Kind of Terraform modules. The runner implements it.
pub const TERRAFORM_MODULE: &str = "terraform_module";

/// Names of the kind of container images. The runner implements it.
pub const CONTAINER_IMAGE: [&str; 2] = domain::image::COMPONENT_TYPES;

/// Kinds whose settings the format defines. Plugins deploy them.
pub const KUBERNETES_MANIFEST: &str = "kubernetes_manifest";
pub const HELM_CHART: &str = "helm_chart";

/// Kinds whose jobs cannot do their work without a cluster.
pub const NEED_CLUSTER: [&str; 2] = [KUBERNETES_MANIFEST, HELM_CHART];

/// Kinds of the format that require a plugin, and what that plugin handles.
pub(crate) const PLUGIN_KINDS: [(&str, &str); 7] = [
    (HELM_CHART, "Kubernetes"),
    (KUBERNETES_MANIFEST, "Kubernetes"),
    ("docker_build", "container images"),
    ("pulumi", "Pulumi"),
    ("terraform_stack", "Terraform stacks"),
    ("opentofu_module", "OpenTofu"),
    ("job", "jobs"),
];

/// Returns true for a kind that the runner implements. Every other kind is the name of a plugin.
pub(crate) fn is_built_in(kind: &str) -> bool {
    kind == TERRAFORM_MODULE || CONTAINER_IMAGE.contains(&kind)
}

/// Returns true if the runner or one of these plugins implements the kind.
pub(crate) fn is_deployable(kind: &str, plugins: &[PluginPin]) -> bool {
    is_built_in(kind) || plugins.iter().any(|plugin| plugin.name == kind)
}

/// Contents of an app directory.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct AppConfig {
    pub metadata: Metadata,
    pub input_groups: Vec<InputGroup>,
    /// Inputs, sorted by name.
    pub inputs: Vec<Input>,
    pub sandbox: Option<Sandbox>,
    pub runner: Option<Runner>,
    pub stack: Option<Stack>,
    pub roles: Vec<Role>,
    pub policies: Vec<Policy>,
    pub secrets: Vec<Secret>,
    /// Secrets as sensitive inputs.
    #[serde(skip)]
    pub secret_inputs: Vec<Input>,
    /// Components, sorted by name.
    pub components: Vec<Component>,
    /// Actions, sorted by name.
    pub actions: Vec<Action>,
    /// Directories with the scripts of action steps, sorted by name.
    #[serde(skip)]
    pub scripts: Vec<ScriptSource>,
    pub runbooks: Vec<Runbook>,
    /// Installs that the directory describes.
    pub installs: Vec<InstallFile>,
    /// Source of the installs, if the directory does not describe them.
    pub installs_elsewhere: Option<Source>,
    pub operation_roles: Option<OperationRoles>,
    pub kubernetes_contexts: Vec<KubernetesContext>,
    pub branches: Vec<Branch>,
    pub installer: Option<Installer>,
    /// Plugins that the bundle pins, and published plugins, sorted by name.
    pub plugins: Vec<PluginPin>,
    /// References of content keys to files of the app directory (`./file`).
    pub file_refs: Vec<FileRef>,
    /// Locations of all values of all files.
    #[serde(skip)]
    pub spans: Spans,
    /// Settings that the other fields leave out, for the diff of two versions.
    #[serde(skip)]
    pub(crate) unmodeled: UnmodeledSettings,
}

/// Values of keys that the typed parts leave out, by file and key path.
pub(crate) type UnmodeledSettings = BTreeMap<String, BTreeMap<String, Value>>;

impl AppConfig {
    pub fn component(&self, name: &str) -> Option<&Component> {
        self.components.iter().find(|c| c.name == name)
    }

    pub fn action(&self, name: &str) -> Option<&Action> {
        self.actions.iter().find(|a| a.name == name)
    }

    /// Name of the component whose outputs describe the cluster of a context, or
    /// [`SANDBOX`]. `None` if the context is not declared.
    pub fn cluster_component(&self, context: Option<&str>) -> Option<&str> {
        let Some(context) = context else { return Some(SANDBOX) };
        let declared = self.kubernetes_contexts.iter().find(|one| one.name == context);
        match declared {
            Some(declared) => Some(&declared.component),
            None => SANDBOX_CONTEXTS.contains(&context).then_some(SANDBOX),
        }
    }

    /// Name of the component that creates the cluster of `component`. `None` for the cluster of the
    /// sandbox.
    pub fn cluster_of(&self, component: &Component) -> Option<&str> {
        let context = component.module.options.kubernetes_context.as_deref();
        self.cluster_component(context).filter(|name| *name != SANDBOX)
    }

    pub fn input(&self, name: &str) -> Option<&Input> {
        self.inputs.iter().find(|i| i.name == name)
    }

    /// Returns the secret of this name as a sensitive input.
    pub fn secret_input(&self, name: &str) -> Option<&Input> {
        self.secret_inputs.iter().find(|secret| secret.name == name)
    }

    /// Returns the inputs, then the secrets: all values that an install can have.
    pub fn install_values(&self) -> impl Iterator<Item = &Input> {
        self.inputs.iter().chain(&self.secret_inputs)
    }

    /// Returns the input or the secret of this name.
    pub fn install_value(&self, name: &str) -> Option<&Input> {
        self.input(name).or_else(|| self.secret_input(name))
    }

    pub fn plugin(&self, name: &str) -> Option<&PluginPin> {
        self.plugins.iter().find(|p| p.name == name)
    }

    /// Returns the types of the components and the sandbox that a plugin must implement.
    pub fn plugin_types(&self) -> BTreeSet<&str> {
        let sandbox = self.sandbox.iter().map(|sandbox| &sandbox.module);
        let modules = sandbox.chain(self.components.iter().map(|component| &component.module));
        let types = modules.map(|module| module.kind.as_str());
        types.filter(|kind| !kind.is_empty() && !is_built_in(kind)).collect()
    }

    /// Message for a component (or the sandbox) that is published but cannot be deployed, because
    /// its plugin is missing.
    pub fn lacks_plugin(&self, name: &str) -> Option<String> {
        let base = self.sandbox.as_ref().filter(|_| name == crate::tree::SANDBOX);
        let module = base.map(|base| &base.module);
        let module = module.or_else(|| self.component(name).map(|component| &component.module))?;
        let kind = module.kind.as_str();
        if self.is_deployable(kind) {
            return None;
        }
        let purpose =
            PLUGIN_KINDS.iter().find(|(known, _)| *known == kind).map(|(_, purpose)| *purpose);
        let purpose_text = purpose.map(|purpose| format!(", for {purpose}")).unwrap_or_default();
        Some(format!(
            "cannot deploy `{name}`: the plugin `{kind}`{purpose_text} is missing; publish it (stead \
             plugins push stead-plugin-{kind}) and sync the app again, or use the type \
             `{TERRAFORM_MODULE}`"
        ))
    }

    /// Returns the finding for a component (or the sandbox) whose source no build runner can fetch.
    pub fn invalid_repository(&self, name: &str) -> Option<crate::Diagnostic> {
        if let Some(scripts) = self.scripts.iter().find(|scripts| scripts.name == name) {
            let what = format!("the source of the scripts in {}", scripts.source.directory);
            let place = (scripts.file.as_str(), &scripts.at);
            return crate::read::invalid_repository(self, &what, place, &scripts.source);
        }
        let base = self.sandbox.as_ref().filter(|_| name == crate::tree::SANDBOX);
        let (file, module) = match base {
            Some(base) => ("sandbox.toml", &base.module),
            None => self.component(name).map(|one| (one.file.as_str(), &one.module))?,
        };
        let source = module.source.as_ref().filter(|_| self.is_deployable(&module.kind))?;
        let what = format!("the source of `{name}`");
        crate::read::invalid_repository(self, &what, (file, &module.at), source)
    }

    /// Returns the finding for a directory of scripts that does not exist.
    pub fn missing_scripts(&self, scripts: &ScriptSource) -> crate::Diagnostic {
        crate::read::missing_scripts(self, scripts)
    }

    /// Returns true if the component (or the sandbox) of this kind can be deployed.
    pub(crate) fn is_deployable(&self, kind: &str) -> bool {
        is_deployable(kind, &self.plugins)
    }

    /// Location of a value. `at` is the origin of its part, and `key` the key path in that part,
    /// such as `steps.0.name`. An empty key means the part itself.
    pub fn span(&self, at: &Origin, key: &str) -> Option<Span> {
        self.spans.of(at, key)
    }

    /// Directories that a bundle needs: modules by component name and [`crate::tree::SANDBOX`], and
    /// scripts by the names of their artifacts.
    pub fn sources(&self) -> BTreeMap<&str, &Source> {
        let sandbox = self.sandbox.iter().map(|s| (crate::tree::SANDBOX, &s.module));
        let components = self.components.iter().map(|c| (c.name.as_str(), &c.module));
        sandbox
            .chain(components)
            .filter_map(|(name, module)| module.source.as_ref().map(|source| (name, source)))
            .chain(self.scripts.iter().map(|scripts| (scripts.name.as_str(), &scripts.source)))
            .collect()
    }
}

/// Module and settings that components and the sandbox have in common.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Module {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    /// [`TERRAFORM_MODULE`], a name of [`CONTAINER_IMAGE`], or the name of a plugin, which the
    /// bundle may lack.
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terraform_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    pub vars: BTreeMap<String, Text>,
    pub env_vars: BTreeMap<String, Text>,
    /// Contents of variable files. A later file overrides earlier ones.
    pub var_files: Vec<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_schedule: Option<String>,
    pub spec: Spec,
    pub options: Options,
    /// The whole file as written, as JSON, for a plugin and for the diff.
    pub settings: Value,
    /// All texts that may be templates, including those of the files in `files`.
    #[serde(skip)]
    pub texts: Vec<Text>,
    /// Digests of the files that content keys name, by path.
    pub files: BTreeMap<String, Digest>,
    /// Digest of the module directory. Absent in a survey, and if the bundle does not contain the
    /// directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_digest: Option<Digest>,
    /// Source that the build runner fetches from git. Absent in a survey, if the bundle contains
    /// the directory, and for a type without its plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// Digest over the source, the settings, the named files and the plugin. The value of an input
    /// does not change it. Absent in a survey.
    pub digest: Option<Digest>,
}

/// Keys whose meaning the format defines. They are not settings of a plugin.
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
    /// Settings of a plugin's component besides the common keys, as written. `None` for a kind that
    /// the runner implements.
    pub fn own_settings(&self) -> Option<Value> {
        if is_built_in(&self.kind) {
            return None;
        }
        let mut own = self.settings.as_object().cloned().unwrap_or_default();
        own.retain(|key, _| !COMMON_KEYS.contains(&key.as_str()));
        Some(Value::Object(own))
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Component {
    pub name: String,
    /// File that describes the component.
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub var_name: Option<String>,
    /// Declared dependencies. [`crate::refs::Graph`] adds the dependencies that templates imply.
    pub dependencies: Vec<String>,
    #[serde(flatten)]
    pub module: Module,
}

/// The sandbox: the base of all components.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Sandbox {
    #[serde(flatten)]
    pub module: Module,
}

/// Source of a module directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Source {
    /// Repository: `OWNER/NAME`, or `.` for the app directory itself.
    pub repo: String,
    /// Directory relative to the root of the repository. `.` is the root.
    pub directory: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// True if the source needs the vendor's own access (`connected_repo`).
    pub connected: bool,
}

impl Source {
    /// Returns the source in git. `None` for a directory of the app directory.
    pub fn git(&self) -> Option<GitSource> {
        (self.repo != ".").then(|| GitSource {
            repo: self.repo.clone(),
            directory: self.directory.clone(),
            reference: self.branch.clone().unwrap_or_else(|| git::HEAD.into()),
        })
    }
}

/// A content key that names a file of the app directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FileRef {
    /// File that has the key.
    pub file: String,
    pub reference: String,
    /// Path in the app directory. Absent if the file does not exist.
    pub resolved: Option<String>,
}
