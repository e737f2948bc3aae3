//! Module directories of a bundle: presence, digests, and sources in git.
use std::collections::BTreeMap;

use domain::git::{self, GitAddressError};
use serde_json::json;

use crate::{
    diagnostic::{Diagnostic, Location, Severity},
    model::{AppConfig, HELM_CHART, Module, ScriptSource, Source, TERRAFORM_MODULE, is_deployable},
    modules::Local,
    text::Origin,
    tree::{PluginPin, SANDBOX, SOURCE, Tree, sha256},
};

pub fn attach(bundle: &Tree, config: &mut AppConfig) -> Vec<Diagnostic> {
    let plugins = config.plugins.clone();
    let mut findings = Vec::new();
    for component in &mut config.components {
        let (name, file) = (component.name.clone(), component.file.clone());
        attach_module(bundle, &name, &file, &mut component.module, &plugins, &mut findings);
    }
    if let Some(sandbox) = &mut config.sandbox {
        attach_module(
            bundle,
            SANDBOX,
            "sandbox.toml",
            &mut sandbox.module,
            &plugins,
            &mut findings,
        );
    }
    let sandbox = config.sandbox.iter().map(|sandbox| (SANDBOX, &sandbox.module));
    let components = config.components.iter().map(|one| (one.name.as_str(), &one.module));
    let from_git = sandbox.chain(components).filter(|(_, module)| module.git.is_some());
    findings.extend(from_git.filter_map(|(name, _)| config.invalid_repository(name)));
    let mut scripts = std::mem::take(&mut config.scripts);
    for one in &mut scripts {
        findings.extend(attach_scripts(bundle, config, one));
    }
    config.scripts = scripts;
    let from_git = config.scripts.iter().filter(|scripts| scripts.git.is_some());
    findings.extend(from_git.filter_map(|scripts| config.invalid_repository(&scripts.name)));
    findings
}

/// Finds the files of scripts: in the bundle, or in git.
fn attach_scripts(
    bundle: &Tree,
    config: &AppConfig,
    scripts: &mut ScriptSource,
) -> Option<Diagnostic> {
    let files = bundle.source(&scripts.name);
    let (repo, directory) = (&scripts.source.repo, &scripts.source.directory);
    if files.is_empty() {
        scripts.git = scripts.source.git();
    }
    let content = match (&scripts.git, files.digest()) {
        (Some(git), _) => json!({ "git": git }),
        (None, Ok(digest)) if !files.is_empty() => json!({ "source": digest }),
        (None, Ok(_)) => return Some(missing_scripts(config, scripts)),
        (None, Err(error)) => {
            let message = format!("cannot pack the scripts of {directory} in {repo}: {error}");
            let remedy = "shorten the path";
            return Some(finding("malformed_bundle", &scripts.file, message, remedy.into()));
        }
    };
    scripts.digest = Some(sha256(content.to_string().as_bytes()));
    None
}

/// Returns the finding for a directory of scripts without files.
pub fn missing_scripts(config: &AppConfig, scripts: &ScriptSource) -> Diagnostic {
    let (repo, directory) = (&scripts.source.repo, &scripts.source.directory);
    let message = format!("the directory of scripts {directory} in {repo} is missing");
    let remedy = match repo.as_str() {
        "." => "check that the directory exists in the app directory".to_owned(),
        _ => "check the directory, or pass the local path of the repository: --source REPO=PATH"
            .to_owned(),
    };
    let place = location(config, &scripts.at, &scripts.source, "directory");
    Diagnostic::error("missing_module", message, remedy).at(&scripts.file, place)
}

/// Predicts the findings of [`attach`] before a sync. Covers modules in the app directory and
/// components that name no module.
pub fn predict_findings(app: &Tree, config: &AppConfig) -> Vec<Diagnostic> {
    let sandbox = config.sandbox.iter().map(|sandbox| (SANDBOX, "sandbox.toml", &sandbox.module));
    let components =
        config.components.iter().map(|c| (c.name.as_str(), c.file.as_str(), &c.module));
    let all = sandbox.chain(components).filter(|(_, _, module)| config.is_deployable(&module.kind));
    let missing = all.filter_map(|(name, file, module)| {
        let source = match &module.source {
            None => Tree::default(),
            Some(source) if source.repo != "." => return None,
            Some(source) if source.directory == "." => app.clone(),
            Some(source) => app.subtree(&source.directory),
        };
        let (code, message, remedy) = missing(name, module, &source)?;
        let mut found = finding(code, file, message, remedy);
        if let Some(source) = &module.source {
            found = found.at(file, location(config, &module.at, source, "directory"));
        }
        Some(found)
    });
    let scripts = config.scripts.iter().filter(|scripts| {
        let Source { repo, directory, .. } = &scripts.source;
        repo == "." && directory != "." && app.subtree(directory).is_empty()
    });
    missing.chain(scripts.map(|scripts| missing_scripts(config, scripts))).collect()
}

/// Modules in the app directory, by component.
pub fn local(app: &Tree, config: &AppConfig) -> BTreeMap<String, Local> {
    let in_directory = config.sources().into_iter().filter(|(_, source)| source.repo == ".");
    let local = in_directory.map(|(name, source)| {
        let local = match source.directory.as_str() {
            "." => Local { tree: app.clone(), path: String::new() },
            directory => Local { tree: app.subtree(directory), path: format!("{directory}/") },
        };
        (name.to_string(), local)
    });
    local.collect()
}

fn attach_module(
    bundle: &Tree,
    name: &str,
    file: &str,
    module: &mut Module,
    plugins: &[PluginPin],
    findings: &mut Vec<Diagnostic>,
) {
    let source = bundle.source(name);
    let is_deployable = is_deployable(&module.kind, plugins);
    // A part that cannot be deployed needs no module. The server rejects its deploy before it reads
    // the module, so nothing fetches the module.
    if source.is_empty() && is_deployable {
        module.git = module.source.as_ref().and_then(Source::git);
    }
    let missing = missing(name, module, &source).filter(|_| module.git.is_none());
    if let Some((code, message, remedy)) = missing {
        let mut finding = finding(code, file, message, remedy);
        if !is_deployable {
            finding.severity = Severity::Warning;
        }
        findings.push(finding);
    }
    if !source.is_empty() {
        match source.digest() {
            Ok(digest) => module.source_digest = Some(digest),
            Err(error) => findings.push(finding(
                "malformed_bundle",
                file,
                format!("cannot pack the module directory of `{name}`: {error}"),
                "shorten the path".into(),
            )),
        }
    }
    let plugin = plugins.iter().find(|plugin| plugin.name == module.kind);
    let content = json!({
        "files": module.files,
        "kind": module.kind,
        "plugin": plugin.map(|plugin| &plugin.digest),
        "settings": module.settings,
        "source": module.source_digest,
    });
    module.digest = Some(sha256(content.to_string().as_bytes()));
}

/// Returns the finding for a source that no build runner can fetch. `what` describes it, and `at` is
/// the location of its part.
pub fn invalid_repository(
    config: &AppConfig,
    what: &str,
    (file, at): (&str, &Origin),
    source: &Source,
) -> Option<Diagnostic> {
    let of_git = source.git()?;
    let checked = git::url(&of_git.repo).and_then(|_| git::check_reference(&of_git.reference));
    let error = checked.err()?;
    let key = match &error {
        GitAddressError::Address(_) | GitAddressError::Credential(_) => "repo",
        GitAddressError::Reference(_) => "branch",
    };
    let message = format!("{what} is not valid: {error}");
    let remedy = "name a repository that git can fetch, or pass a local copy: --source REPO=PATH";
    let place = location(config, at, source, key);
    Some(Diagnostic::error("bad_repository", message, remedy).at(file, place))
}

/// Returns the location of a key of a repository.
fn location(config: &AppConfig, at: &Origin, source: &Source, key: &str) -> Location {
    let table = if source.connected { "connected_repo" } else { "public_repo" };
    config.span(at, &format!("{table}.{key}")).map_or(Location::default(), |span| {
        let length = span.end_column.saturating_sub(span.column);
        Location { line: span.line, column: span.column, length }
    })
}

/// Returns code, message and remedy for a module directory that is absent or of another type.
fn missing(name: &str, module: &Module, source: &Tree) -> Option<(&'static str, String, String)> {
    let code = "missing_module";
    let Some(place) = &module.source else {
        let needed = module.kind == TERRAFORM_MODULE;
        return needed.then(|| {
            let message = format!("`{name}` does not name its module");
            let remedy =
                "add [public_repo] with repo and directory (repo = \".\" is this repository)";
            (code, message, remedy.into())
        });
    };
    let (repo, directory) = (&place.repo, &place.directory);
    if source.is_empty() {
        let message = format!("the module of `{name}` ({directory} in {repo}) is missing");
        let remedy = if repo == "." {
            "check that the directory exists in the app directory".to_string()
        } else {
            format!("check the directory, or pass the path of the repository: --source {repo}=PATH")
        };
        return Some((code, message, remedy));
    }
    if module.kind == HELM_CHART && source.get("Chart.yaml").is_none() {
        let message = format!("the chart of `{name}` ({directory} in {repo}) has no Chart.yaml");
        return Some(("missing_chart", message, "correct `directory` of its repository".into()));
    }
    let terraform = |path: &str| path.ends_with(".tf") || path.ends_with(".tf.json");
    let top = |path: &str| !path.contains('/');
    let has_module = source.iter().any(|(path, _)| top(path) && terraform(path));
    (module.kind == TERRAFORM_MODULE && !has_module).then(|| {
        let message = format!("the module of `{name}` ({directory} in {repo}) has no .tf file");
        (code, message, "check that this is the module's directory".to_string())
    })
}

/// Reports module directories that belong to no component of the config.
pub fn unexpected_modules(bundle: &Tree, config: &AppConfig) -> Vec<Diagnostic> {
    let mut names: Vec<String> = bundle
        .subtree(SOURCE)
        .iter()
        .map(|(path, _)| path.split('/').next().unwrap_or_default().to_string())
        .collect();
    names.dedup();
    let known = |name: &str| {
        config.component(name).is_some()
            || (name == SANDBOX && config.sandbox.is_some())
            || config.scripts.iter().any(|scripts| scripts.name == name)
    };
    names
        .into_iter()
        .filter(|name| !known(name))
        .map(|name| {
            let message =
                format!("the bundle contains a module for `{name}`, but no such component exists");
            finding(
                "malformed_bundle",
                "",
                message,
                "create the bundle with `stead apps sync`".into(),
            )
        })
        .collect()
}

fn finding(code: &'static str, file: &str, message: String, remedy: String) -> Diagnostic {
    Diagnostic::error(code, message, remedy).at(file, Location::default())
}
