//! Reads files into a typed config. Most modules read one file kind of the format.
//!
//! Reading continues after a finding, so that a vendor can correct all problems at once. Unknown
//! keys are warnings, because real directories contain keys of other versions.
use std::collections::BTreeSet;

use crate::{
    diagnostic::{Diagnostic, Severity},
    model::{AppConfig, script_sources},
    modules,
    tree::{PluginPin, Tree, TreeError},
};

mod actions;
mod break_glass;
mod components;
mod content;
mod cross_checks;
mod helm_repo;
mod ignored_settings;
mod image;
mod inputs;
mod installs;
mod kinds;
mod kustomize;
mod metadata;
mod module;
mod names;
mod permissions;
mod platform;
mod policies;
mod reader;
mod runbooks;
mod runner;
mod sandbox;
mod secrets;
mod section;
mod sensitive;
mod sources;
mod spec;
mod stack;
mod times;
mod undeployed_texts;
mod unknown;
mod usage;
mod variables;
mod yaml_texts;

pub use self::content::remote_path;
use self::reader::{Reader, ReaderResult};
pub(crate) use self::sources::{invalid_repository, missing_scripts};

/// The config as far as it could be read, and all findings.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    pub config: AppConfig,
    /// All findings, sorted: errors first, then by file, line and column.
    pub diagnostics: Vec<Diagnostic>,
    /// URLs of remote texts that the directory names but does not contain; see [`remote_path`].
    pub remotes: Vec<String>,
}

impl Reading {
    /// True if an error stops the config from being published.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }
}

/// Reads an app directory before its module directories are gathered. The root of the tree is the
/// app directory. [`AppConfig::sources`] then lists the directories that a bundle needs.
///
/// The survey checks modules inside the app directory. Only the caller that gathers a module from
/// another repository can check that module.
pub fn survey(app: &Tree, plugins: &[PluginPin]) -> Reading {
    let mut reading = directory(app, plugins);
    reading.diagnostics.extend(sources::predict_findings(app, &reading.config));
    let local = sources::local(app, &reading.config);
    reading.diagnostics.extend(modules::check(&reading.config, &local));
    sort(&mut reading.diagnostics);
    reading
}

/// Returns the component types of a bundle that need a published plugin. Ignores errors in the
/// bundle, which [`read_with`] reports.
pub fn unpinned_plugin_types(bundle: &Tree) -> BTreeSet<String> {
    let pinned = bundle.plugins().unwrap_or_default();
    let config = directory(&bundle.app(), &pinned).config;
    let types = config.plugin_types().into_iter();
    types.filter(|kind| config.plugin(kind).is_none()).map(str::to_owned).collect()
}

fn directory(app: &Tree, plugins: &[PluginPin]) -> Reading {
    let reader = Reader::new(app, plugins);
    let mut config = directory_with(&reader);
    let ReaderResult { diagnostics, file_refs, remotes, spans, unmodeled } = reader.finish();
    (config.file_refs, config.spans, config.unmodeled) = (file_refs, spans, unmodeled);
    Reading { config, diagnostics, remotes }
}

fn directory_with(reader: &Reader<'_>) -> AppConfig {
    let mut config = AppConfig {
        metadata: metadata::read(reader),
        sandbox: sandbox::read(reader),
        runner: runner::read(reader),
        stack: stack::read(reader),
        roles: permissions::read(reader),
        policies: policies::read(reader),
        secrets: secrets::read(reader),
        components: components::read(reader),
        actions: actions::read(reader),
        runbooks: runbooks::read(reader),
        installs: installs::read(reader),
        installs_elsewhere: usage::installs_elsewhere(reader),
        operation_roles: usage::operation_roles(reader),
        kubernetes_contexts: usage::contexts(reader),
        branches: usage::branches(reader),
        installer: usage::installer(reader),
        plugins: reader.plugins.to_vec(),
        ..AppConfig::default()
    };
    config.scripts = script_sources(&config.actions);
    config.plugins.sort_by(|a, b| a.name.cmp(&b.name));
    (config.input_groups, config.inputs) = inputs::read(reader);
    config.secret_inputs = secrets::inputs(&config);
    config.roles.extend(break_glass::read(reader));
    installs::check(&mut config, reader);
    unknown::check(reader);
    cross_checks::check(&config, reader);
    config
}

/// Reads a bundle: `app/**`, `source/<component>/**` and `plugins.json`.
///
/// # Errors
/// All findings, including warnings, if at least one finding is an error.
pub fn read(bundle: &Tree) -> Result<(AppConfig, Vec<Diagnostic>), Vec<Diagnostic>> {
    read_with(bundle, &[])
}

/// Reads a bundle as [`read`] does. A component can also use one of the `published` plugins, unless
/// the bundle pins a plugin of this name.
///
/// # Errors
/// All findings, including warnings, if at least one finding is an error.
pub fn read_with(
    bundle: &Tree,
    published: &[PluginPin],
) -> Result<(AppConfig, Vec<Diagnostic>), Vec<Diagnostic>> {
    let mut plugins = bundle.plugins().map_err(|error| vec![about_bundle(&error)])?;
    for plugin in published {
        if !plugins.iter().any(|pin| pin.name == plugin.name) {
            plugins.push(plugin.clone());
        }
    }
    let Reading { mut config, mut diagnostics, .. } = directory(&bundle.app(), &plugins);
    // All plugins are known here, so an unknown kind is an error.
    for finding in diagnostics.iter_mut().filter(|finding| finding.code == "unknown_kind") {
        finding.severity = Severity::Error;
    }
    diagnostics.extend(sources::attach(bundle, &mut config));
    if !diagnostics.iter().any(Diagnostic::is_error) {
        // If a file could not be read, its component is absent, and the component's module would be
        // reported as unexpected.
        diagnostics.extend(sources::unexpected_modules(bundle, &config));
    }
    sort(&mut diagnostics);
    if diagnostics.iter().any(Diagnostic::is_error) {
        return Err(diagnostics);
    }
    Ok((config, diagnostics))
}

fn sort(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by(|a, b| {
        let key = |d: &Diagnostic| (d.severity, d.file.clone(), d.line, d.column, d.code);
        key(a).cmp(&key(b)).then_with(|| a.message.cmp(&b.message))
    });
    diagnostics.dedup();
}

fn about_bundle(error: &TreeError) -> Diagnostic {
    Diagnostic::error(
        "malformed_bundle",
        error.to_string(),
        "create the bundle with `stead apps sync`",
    )
}
