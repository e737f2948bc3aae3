//! Packs an app directory into a bundle, after local checks.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use app_config::{
    Severity, Tree, model,
    modules::{self, Local},
    read_with, survey,
    tree::PluginPin,
};
use bytes::Bytes;
use schemas::{
    control::Diagnostic,
    problem::{FieldProblem, Problem},
};

use super::{Source, directory, plugin, remote};
use crate::failure::Failure;

/// Maximum size of a bundle that the server accepts.
const LIMIT_BYTES: usize = 64 << 20;

/// Bundle that is ready for the upload.
pub(crate) struct Packed {
    pub(crate) name: String,
    /// Archive, compressed with zstd.
    pub(crate) bytes: Bytes,
    /// Findings that do not prevent publishing.
    pub(crate) warnings: Vec<Diagnostic>,
}

/// Reads the directory, adds the modules, checks the result, and packs the bundle.
/// `published` returns the newest published plugins, if a component needs one.
pub(crate) async fn pack(
    source: &Source,
    published: impl AsyncFnOnce() -> Result<Vec<PluginPin>, Failure>,
) -> Result<Packed, Failure> {
    let name = app_name(source)?;
    let mut app = directory::read(&source.dir)?;
    let mut pins = Vec::new();
    for (plugin_name, path) in &source.plugins {
        pins.push(plugin::pin(plugin_name, path).await?);
    }
    let mut reading = survey(&app, &pins);
    if source.allow_remote && remote::fetch_all(&reading.remotes, &mut app).await? {
        reading = survey(&app, &pins);
    }
    // The server resolves published plugins. The client uses them only for its checks.
    let is_pinned = |name: &str| pins.iter().any(|pin| pin.name == name);
    let mut available = Vec::new();
    if reading.config.plugin_types().into_iter().any(|kind| !is_pinned(kind)) {
        available = published().await?;
        available.retain(|plugin| !is_pinned(&plugin.name));
        reading = survey(&app, &[pins.as_slice(), &available].concat());
    }
    if reading.has_errors() {
        return Err(invalid_config(&name, &reading.diagnostics));
    }
    if let Some(unused) = unused_source(source, &reading.config) {
        return Err(Failure::Usage(unused));
    }
    let mut sources = BTreeMap::new();
    for (component, module) in reading.config.sources() {
        // Without a plugin the component cannot be deployed yet, so its module is optional. A
        // module that exists locally is included.
        let optional = reading.config.lacks_plugin(component).is_some();
        if optional && !is_here(source, module) {
            continue;
        }
        // The build runner fetches a repository without a local path.
        if repository_path(source, module).is_none() {
            continue;
        }
        let tree = module_tree(source, component, module)?;
        // The bundle has no empty directories, so the server would fetch this module from git.
        if tree.is_empty() && module.repo != "." {
            return Err(Failure::Usage(format!(
                "cannot read the module of {component}: the directory {} in the local path of {} has no files; \
                 correct `directory` or --source",
                module.directory, module.repo
            )));
        }
        sources.insert(component.to_owned(), tree);
    }
    let broken = check_modules(&reading.config, &sources);
    if broken.iter().any(app_config::Diagnostic::is_error) {
        return Err(invalid_config(&name, &broken));
    }
    let too = |e: app_config::TreeError| Failure::Usage(e.to_string());
    let bundle = Tree::bundle(&app, &sources, &pins).map_err(too)?;
    let diagnostics = match read_with(&bundle, &available) {
        Ok((_, warnings)) => warnings,
        Err(findings) => return Err(invalid_config(&name, &findings)),
    };
    let bytes = zstd::encode_all(bundle.encode().map_err(too)?.as_slice(), 3)?;
    if bytes.len() > LIMIT_BYTES {
        let size = crate::render::size(bytes.len() as u64);
        return Err(Failure::Usage(format!(
            "cannot pack the bundle: it has {size}, but the limit is 64 MiB; remove large files from the app directory"
        )));
    }
    let local = reading.diagnostics.iter().filter(|finding| finding.code.ends_with("_variable"));
    let warnings = diagnostics.iter().chain(local).chain(&broken).map(to_wire).collect();
    Ok(Packed { name, bytes: bytes.into(), warnings })
}

/// Findings for local modules of other repositories. The survey of the app directory has checked
/// its own modules.
pub(crate) fn check_modules(
    config: &app_config::AppConfig,
    sources: &BTreeMap<String, Tree>,
) -> Vec<app_config::Diagnostic> {
    let mut other_modules = BTreeMap::new();
    for (name, source) in config.sources().into_iter().filter(|(_, source)| source.repo != ".") {
        if let Some(tree) = sources.get(name) {
            let path = format!("{}/{}/", source.repo, source.directory);
            other_modules.insert(name.to_owned(), Local { tree: tree.clone(), path });
        }
    }
    modules::check(config, &other_modules)
}

pub(crate) fn app_name(source: &Source) -> Result<String, Failure> {
    if let Some(name) = &source.name {
        return Ok(name.clone());
    }
    let real = source
        .dir
        .canonicalize()
        .map_err(|e| Failure::Usage(format!("cannot read {}: {e}", source.dir.display())))?;
    let name = real.file_name().and_then(|n| n.to_str()).map(str::to_owned);
    name.ok_or_else(|| {
        Failure::Usage(
            "cannot determine the name of the app: the directory has no name\n  try: --name NAME"
                .into(),
        )
    })
}

/// Reads the module of a component from the local path of its repository.
pub(crate) fn module_tree(
    source: &Source,
    name: &str,
    module: &model::Source,
) -> Result<Tree, Failure> {
    let repository = repository_path(source, module).ok_or_else(|| {
        Failure::Usage(format!(
            "cannot read the module of {name}: the local path of repository {} is unknown\n  \
             try: --source {}=PATH",
            module.repo,
            short(&module.repo)
        ))
    })?;
    let directory = repository.join(&module.directory);
    if !directory.is_dir() {
        return Err(Failure::Usage(format!(
            "cannot read the module of {name}: the directory {} does not exist\n  try: set `directory` in the file of the component, or pass --source",
            directory.display()
        )));
    }
    within(&repository, &directory)?;
    directory::read(&directory)
}

/// Returns true if the directory of a module exists locally.
pub(crate) fn is_here(source: &Source, module: &model::Source) -> bool {
    repository_path(source, module).is_some_and(|top| top.join(&module.directory).is_dir())
}

/// Returns an error for the first `--source` that no component uses. Without this check, the build
/// runner would fetch these components from git.
pub(crate) fn unused_source(source: &Source, config: &app_config::AppConfig) -> Option<String> {
    let modules = config.sources();
    let used: Vec<usize> =
        modules.values().filter_map(|module| local_repository(&source.repos, module)).collect();
    let (_, (named, path)) =
        source.repos.iter().enumerate().find(|(index, _)| !used.contains(index))?;
    let repos: BTreeSet<String> = modules
        .values()
        .filter(|module| module.repo != ".")
        .map(|module| source_name(module))
        .collect();
    let remedy = match repos.is_empty() {
        true => "no component has a repository; remove --source".to_owned(),
        false => format!(
            "correct the repository or the ref; the components use {}",
            repos.into_iter().collect::<Vec<_>>().join(", ")
        ),
    };
    Some(format!(
        "cannot use --source {}={}: no component has this repository at this ref; {remedy}",
        domain::git::without_userinfo(named),
        path.display()
    ))
}

/// Returns the repository and branch of a module, in the form of `--source`.
fn source_name(module: &model::Source) -> String {
    let repo = domain::git::without_userinfo(&module.repo);
    match &module.branch {
        Some(branch) => format!("{repo}@{branch}"),
        None => repo,
    }
}

/// Returns the local path of the repository of a module, if the command line contains one.
pub(crate) fn repository_path(source: &Source, module: &model::Source) -> Option<PathBuf> {
    if module.repo == "." {
        return Some(source.dir.clone());
    }
    let index = local_repository(&source.repos, module)?;
    source.repos.get(index).map(|(_, path)| path.clone())
}

/// Returns the index of the `--source` for a module. A `--source` with the module's branch takes
/// precedence.
fn local_repository(repos: &[(String, PathBuf)], module: &model::Source) -> Option<usize> {
    let of = |branch: Option<&str>| {
        let is_named = |(named, _): &(String, PathBuf)| {
            let (repo, of_branch) = repository_and_branch(named);
            short(repo) == short(&module.repo) && of_branch == branch
        };
        repos.iter().position(is_named)
    };
    let of_branch = module.branch.as_deref().and_then(|branch| of(Some(branch)));
    of_branch.or_else(|| of(None))
}

/// Splits `REPO@REF`. The `@` after a user, as in `git@host:path`, is part of the repository.
fn repository_and_branch(named: &str) -> (&str, Option<&str>) {
    let start = named.rfind("://").map_or(0, |at| at + 3);
    let path = named[start..].find(['/', ':']).map_or(named.len(), |at| start + at);
    match named[path..].rfind('@') {
        Some(at) => (&named[..path + at], Some(&named[path + at + 1..])),
        None => (named, None),
    }
}

/// Rejects a module outside of its repository.
fn within(top: &Path, directory: &Path) -> Result<(), Failure> {
    let (top, real) = (top.canonicalize()?, directory.canonicalize()?);
    if real.starts_with(directory::repository(&top)) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "cannot read the module {}: it is outside of the repository {}; move it into the repository",
        directory.display(),
        top.display()
    )))
}

/// Reduces the address of a repository to `OWNER/NAME`.
fn short(repo: &str) -> &str {
    let repo = repo.trim_end_matches('/').trim_end_matches(".git");
    let repo = repo.rsplit_once("://").map_or(repo, |(_, rest)| rest);
    let mut slashes = repo.rmatch_indices(['/', ':']);
    slashes.next();
    slashes.next().map_or(repo, |(at, _)| &repo[at + 1..])
}

/// Failure with all errors, in the form of a problem from the server.
fn invalid_config(name: &str, findings: &[app_config::Diagnostic]) -> Failure {
    let errors: Vec<_> = findings.iter().filter(|d| d.severity == Severity::Error).collect();
    let plural = if errors.len() == 1 { "error" } else { "errors" };
    let detail = format!("{name} was not uploaded: {} {plural}", errors.len());
    let mut problem = Problem::new(422, "invalid", "Invalid config", detail);
    problem.errors = errors.into_iter().map(|d| as_field(&to_wire(d))).collect();
    Failure::Problem(Box::new(problem))
}

fn to_wire(finding: &app_config::Diagnostic) -> Diagnostic {
    let nonzero = |n: u32| (n > 0).then_some(n);
    Diagnostic {
        severity: match finding.severity {
            Severity::Error => "error".into(),
            Severity::Warning => "warning".into(),
        },
        file: finding.file.clone(),
        line: nonzero(finding.line),
        column: nonzero(finding.column),
        message: finding.message.clone(),
        remedy: Some(finding.remedy.clone()).filter(|r| !r.is_empty()),
    }
}

/// Converts a finding to a field of a problem.
pub(crate) fn as_field(finding: &Diagnostic) -> FieldProblem {
    FieldProblem {
        field: None,
        file: Some(finding.file.clone()).filter(|f| !f.is_empty()),
        line: finding.line,
        column: finding.column,
        message: finding.message.clone(),
        remedy: finding.remedy.clone(),
    }
}

/// Parses `NAME=PATH`.
pub(crate) fn named_path(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.into(), path.into()))
        }
        Some(_) | None => Err(format!("{text:?} is not valid: use NAME=PATH")),
    }
}

#[cfg(test)]
mod tests {
    use app_config::model::Source;

    use super::{local_repository, repository_and_branch, short};

    #[test]
    fn a_source_with_an_unknown_repository_or_ref_belongs_to_no_module() {
        let module = Source {
            repo: "https://github.com/acme/modules".into(),
            directory: ".".into(),
            branch: Some("main".into()),
            connected: false,
        };
        let of = |names: &[&str]| {
            let repos: Vec<_> =
                names.iter().map(|name| ((*name).to_owned(), "/x".into())).collect();
            local_repository(&repos, &module)
        };
        assert_eq!(of(&["acme/modules"]), Some(0));
        assert_eq!(of(&["acme/modules", "acme/modules@main"]), Some(1));
        for unused in ["acme/module", "acme/modules@mian", "acme/modules@v1"] {
            assert_eq!(of(&[unused]), None, "{unused}");
        }
    }

    #[test]
    fn a_branch_follows_the_repository() {
        for (named, expected) in [
            ("acme/modules", ("acme/modules", None)),
            ("acme/modules@v1", ("acme/modules", Some("v1"))),
            ("acme/modules@feature/x", ("acme/modules", Some("feature/x"))),
            ("git@github.com:acme/modules", ("git@github.com:acme/modules", None)),
            ("git@github.com:acme/modules@v1", ("git@github.com:acme/modules", Some("v1"))),
            ("https://host/acme/modules@v1", ("https://host/acme/modules", Some("v1"))),
        ] {
            assert_eq!(repository_and_branch(named), expected, "{named}");
        }
    }

    #[test]
    fn repository_urls_are_compared_by_owner_and_name() {
        for written in [
            "acme/modules",
            "https://github.com/acme/modules",
            "https://github.com/acme/modules.git",
            "git@github.com:acme/modules.git",
        ] {
            assert_eq!(short(written), "acme/modules", "{written}");
        }
    }
}
