//! Inputs of the component, as the server renders them.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use schemas::plugin::{CallContext, Operation};
use serde::{Deserialize, de::DeserializeOwned};

use crate::failure::{Failure, IoContext, Outcome};

/// Default of `ready_timeout_ms`.
const READY_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum length of a field manager's name in an API server, in bytes.
const MAX_MANAGER: usize = 128;

/// Component of an install, with its directories and settings.
#[derive(Debug)]
pub struct Component<S = Settings> {
    pub install: String,
    pub name: String,
    pub operation: Operation,
    pub settings: S,
    pub source_dir: PathBuf,
    pub work_dir: PathBuf,
}

#[derive(Deserialize)]
struct Inputs<S> {
    #[serde(default)]
    install: Option<String>,
    settings: Option<S>,
}

/// Keys of the component file. An unknown key is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Namespace of objects whose manifest names none.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Objects, as YAML documents.
    #[serde(default)]
    pub manifest: Option<String>,
    /// Name of the manifest in messages.
    #[serde(default)]
    pub manifest_file: Option<String>,
    #[serde(default)]
    pub kustomize: Option<Kustomize>,
    /// Allows the plan to adopt existing objects without an owner.
    #[serde(default)]
    pub take_ownership: bool,
    #[serde(default)]
    pub outputs: BTreeMap<String, OutputField>,
    /// Timeout of an apply for objects to become ready and for deleted objects to disappear.
    #[serde(default)]
    pub ready_timeout_ms: Option<u64>,
}

/// Kustomization in the component's source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kustomize {
    pub path: String,
    #[serde(default)]
    pub patches: Vec<String>,
    #[serde(default)]
    pub enable_helm: bool,
    /// Rendered files that replace those of the source, by path.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// Field of an object that becomes an output.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputField {
    pub kind: String,
    pub name: String,
    #[serde(default)]
    pub namespace: Option<String>,
    /// Path such as `status.loadBalancer.ingress[0].hostname`.
    pub field: String,
}

impl<S: Default + DeserializeOwned> Component<S> {
    /// Reads the inputs of a call.
    pub fn read(context: &CallContext) -> Outcome<Self> {
        let inputs: Inputs<S> = read_inputs(context)?;
        let install = inputs.install.filter(|install| !install.is_empty()).ok_or_else(|| {
            Failure::refused("invalid inputs: `install` is missing; upgrade the server")
        })?;
        let settings = inputs.settings.unwrap_or_default();
        let component = Component {
            install,
            name: context.component.clone(),
            operation: context.operation,
            settings,
            source_dir: context.source_dir.clone(),
            work_dir: context.work_dir.clone(),
        };
        let manager = component.manager();
        if manager.len() > MAX_MANAGER {
            return Err(Failure::refused(format!(
                "cannot manage the component: its field manager {manager:?} is longer than \
                 {MAX_MANAGER} bytes; give the component a shorter name"
            )));
        }
        Ok(component)
    }
}

/// Reads the inputs of a call, from its message or from a file.
pub fn read_inputs<I: DeserializeOwned>(context: &CallContext) -> Outcome<I> {
    let invalid = |e: &dyn std::fmt::Display| {
        let name = &context.component;
        Failure::refused(format!("invalid settings of the component {name}: {e}"))
    };
    match (&context.inputs, &context.inputs_file) {
        (_, Some(file)) => {
            let content = std::fs::read(&file.path).context(|| "read the inputs".into())?;
            file.parse(&content).map_err(|e| invalid(&e))
        }
        (Some(inputs), None) => serde_json::from_value(inputs.clone()).map_err(|e| invalid(&e)),
        (None, None) => Err(invalid(&"the call has no inputs")),
    }
}

impl<S> Component<S> {
    /// Returns the field manager of the component's objects.
    pub fn manager(&self) -> String {
        format!("stead:{}/{}", self.install, self.name)
    }
}

impl Component {
    pub fn ready_timeout(&self) -> Duration {
        ready_timeout(self.settings.ready_timeout_ms)
    }
}

/// Returns the timeout of an apply for objects to become ready.
pub fn ready_timeout(timeout_ms: Option<u64>) -> Duration {
    timeout_ms.map_or(READY_TIMEOUT, Duration::from_millis)
}
