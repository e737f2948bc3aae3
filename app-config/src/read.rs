//! From files to a typed config. One file here per file kind of the format.
//!
//! Reading never stops at the first finding: a person corrects all of them at once. Keys that this
//! release does not know are warnings, because real directories are full of keys of other versions.
use crate::{
    diagnostic::Diagnostic,
    model::AppConfig,
    modules,
    tree::{PluginPin, Tree, TreeError},
};

mod actions;
mod around;
mod break_glass;
mod components;
mod content;
mod cross;
mod inputs;
mod installs;
mod kinds;
mod kustomize;
mod loose;
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
mod sources;
mod spec;
mod stack;
mod times;
mod unacted;
mod unknown;
mod variables;

pub use self::content::remote_path;
use self::reader::{Found, Reader};

/// A config as far as it could be read, and everything there is to say about it.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    pub config: AppConfig,
    /// Errors first, then by file, line and column.
    pub diagnostics: Vec<Diagnostic>,
    /// Remote texts that the directory names and does not hold; see [`remote_path`].
    pub remotes: Vec<String>,
}

impl Reading {
    /// Whether something stops it from being published.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }
}

/// Reads an app directory whose module directories have not been gathered yet; the tree's top is
/// the app directory itself. [`AppConfig::sources`] then says what a bundle needs.
///
/// A module that lies in the app directory itself is looked at here; of one in another repository only
/// who gathers it can say anything.
pub fn survey(app: &Tree, plugins: &[PluginPin]) -> Reading {
    let mut reading = directory(app, plugins);
    reading.diagnostics.extend(sources::here(app, &reading.config));
    let local = sources::local(app, &reading.config);
    reading.diagnostics.extend(modules::check(&reading.config, &local));
    sort(&mut reading.diagnostics);
    reading
}

fn directory(app: &Tree, plugins: &[PluginPin]) -> Reading {
    let reader = Reader::new(app, plugins);
    let mut config = directory_with(&reader);
    let Found { diagnostics, file_refs, remotes, spans, beside } = reader.finish();
    (config.file_refs, config.spans, config.beside) = (file_refs, spans, beside);
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
        installs_elsewhere: around::installs_elsewhere(reader),
        operation_roles: around::operation_roles(reader),
        kubernetes_contexts: around::contexts(reader),
        branches: around::branches(reader),
        installer: around::installer(reader),
        plugins: reader.plugins.to_vec(),
        ..AppConfig::default()
    };
    config.plugins.sort_by(|a, b| a.name.cmp(&b.name));
    (config.input_groups, config.inputs) = inputs::read(reader);
    config.roles.extend(break_glass::read(reader));
    installs::check(&mut config, reader);
    unknown::check(reader);
    cross::check(&config, reader);
    config
}

/// Reads a bundle: `app/**`, `source/<component>/**` and `plugins.json`.
///
/// # Errors
/// Everything that was found, warnings too, when at least one finding stops the config.
pub fn read(bundle: &Tree) -> Result<(AppConfig, Vec<Diagnostic>), Vec<Diagnostic>> {
    let plugins = bundle.plugins().map_err(|error| vec![about_bundle(&error)])?;
    let Reading { mut config, mut diagnostics, .. } = directory(&bundle.app(), &plugins);
    diagnostics.extend(sources::attach(bundle, &mut config));
    if !diagnostics.iter().any(Diagnostic::is_error) {
        // A file that could not be read would make a stranger of its component's module.
        diagnostics.extend(sources::strangers(bundle, &config));
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
        "make the bundle with `stead apps sync`",
    )
}
