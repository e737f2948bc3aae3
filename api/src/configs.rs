//! Parsed configs of published bundles: their cache, versions and inputs.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use app_config::{AppConfig, Diagnostic, Graph, InputProblem, Limits, Tree, tree::PluginPin};
use domain::{
    app::{App as AppState, Published},
    digest::Digest,
    plugin::PinnedPlugin,
};
use schemas::problem::FieldProblem;
use serde_json::Value;
use sqlx::PgPool;

use crate::problem::{Code, Problem};

/// Maximum number of cached configs. A full cache is cleared.
const MAX_CACHED: usize = 64;

/// Parsed bundle.
#[derive(Debug)]
pub struct Config {
    /// Configuration in the app directory.
    pub app: AppConfig,
    /// Dependencies between components.
    pub graph: Graph,
    /// Warnings, which do not prevent a sync.
    pub warnings: Vec<Diagnostic>,
    /// Files of the bundle.
    pub tree: Tree,
    /// Published plugins that the components use, by name.
    pub plugins: Vec<PinnedPlugin>,
}

/// Cache of parsed configs by bundle digest and plugins. Clones share the entries.
#[derive(Clone, Default)]
pub struct ConfigCache(Arc<Mutex<HashMap<CacheKey, Arc<Config>>>>);

type CacheKey = (Digest, Vec<PinnedPlugin>);

impl ConfigCache {
    /// Returns the config of a version.
    pub async fn get(&self, pool: &PgPool, version: &Published) -> Result<Arc<Config>, Problem> {
        let bundle = &version.bundle;
        let key = (bundle.clone(), version.plugins.clone());
        if let Some(cached) = self.lock().get(&key) {
            return Ok(cached.clone());
        }
        let bytes = event_log::blob::get(pool, bundle).await?;
        let bytes = bytes.ok_or_else(|| {
            Problem::internal(format!("cannot read the bundle: blob {bundle} is missing"))
        })?;
        let config = Arc::new(read(&bytes, version.plugins.clone())?);
        let mut cached = self.lock();
        if cached.len() >= MAX_CACHED {
            cached.clear();
        }
        cached.insert(key, config.clone());
        Ok(config)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<CacheKey, Arc<Config>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses the tar archive of a bundle that uses these published plugins. Reports the errors of the
/// config with file and line.
pub(crate) fn read(bytes: &[u8], plugins: Vec<PinnedPlugin>) -> Result<Config, Problem> {
    let tree = decode(bytes)?;
    let pins: Vec<PluginPin> = plugins.iter().map(pin).collect();
    match app_config::read_with(&tree, &pins) {
        Ok((app, warnings)) => {
            let graph = app_config::graph(&app);
            Ok(Config { app, graph, warnings, tree, plugins })
        }
        Err(diagnostics) => {
            let errors = diagnostics.iter().filter(|d| d.is_error()).map(field_problem).collect();
            Err(Problem::invalid("invalid app directory; nothing was changed", errors))
        }
    }
}

fn decode(bytes: &[u8]) -> Result<Tree, Problem> {
    Tree::decode(bytes, Limits::default())
        .map_err(|error| Problem::new(Code::Invalid, format!("invalid bundle: {error}")))
}

/// Returns the component types of a bundle that need a published plugin.
pub(crate) fn plugin_types(bytes: &[u8]) -> Result<BTreeSet<String>, Problem> {
    Ok(app_config::unpinned_plugin_types(&decode(bytes)?))
}

fn pin(plugin: &PinnedPlugin) -> PluginPin {
    PluginPin {
        name: plugin.name.clone(),
        version: plugin.version.clone(),
        digest: plugin.digest.clone(),
    }
}

/// Converts a diagnostic to the wire format.
pub(crate) fn field_problem(diagnostic: &Diagnostic) -> FieldProblem {
    let Diagnostic { file, line, column, message, remedy, .. } = diagnostic.clone();
    FieldProblem {
        field: None,
        file: Some(file).filter(|file| !file.is_empty()),
        line: Some(line).filter(|line| *line > 0),
        column: Some(column).filter(|column| *column > 0),
        message,
        remedy: Some(remedy).filter(|remedy| !remedy.is_empty()),
    }
}

/// Returns a config version of an app.
pub(crate) fn published(app: &AppState, version: u32) -> Result<&Published, Problem> {
    app.versions.get(&version).ok_or_else(|| {
        let newest = app.version();
        let detail = format!(
            "config version {version} does not exist: the newest version of the app is {newest}"
        );
        Problem::new(Code::NotFound, detail)
    })
}

/// Resolves all inputs of a config from the stored inputs of an install.
pub(crate) fn resolved_inputs(
    config: &Config,
    inputs: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Problem> {
    app_config::resolve_inputs(&config.app, &known(config, inputs))
        .map_err(|problems| invalid_inputs(&problems))
}

/// Resolves all inputs of a config for display, or before the install is deployed. Sensitive inputs
/// that the install waits for are empty.
pub(crate) fn chosen_inputs(
    config: &Config,
    inputs: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Problem> {
    app_config::choose_inputs(&config.app, &known(config, inputs))
        .map_err(|problems| invalid_inputs(&problems))
}

/// Returns the sensitive inputs that the install waits for.
pub(crate) fn awaited_inputs(config: &Config, inputs: &BTreeMap<String, String>) -> Vec<String> {
    app_config::awaited_inputs(&config.app, &known(config, inputs))
}

/// Selects the stored inputs that the config declares. The install keeps the other inputs, because
/// another version may declare them.
pub(crate) fn known(config: &Config, inputs: &BTreeMap<String, String>) -> BTreeMap<String, Value> {
    let known = inputs.iter().filter(|(name, _)| config.app.install_value(name).is_some());
    known.map(|(name, text)| (name.clone(), text.clone().into())).collect()
}

/// Converts problems with inputs into one rejection.
pub(crate) fn invalid_inputs(problems: &[InputProblem]) -> Problem {
    let errors = problems
        .iter()
        .map(|problem| FieldProblem {
            field: Some(format!("inputs.{}", problem.name())),
            file: None,
            line: None,
            column: None,
            message: problem.to_string(),
            remedy: Some(problem.remedy()),
        })
        .collect();
    Problem::invalid("invalid inputs; nothing was changed", errors)
}
