//! Settings that components and the sandbox have in common.
use super::{content, kustomize, section::Section, spec};
use crate::{
    model::{KubernetesManifest, Kustomize, Module, Source, Spec},
    text::{Origin, Text},
    tree::sha256,
};

pub fn read(section: &Section<'_>, kind: String) -> Module {
    let (mut texts, mut files) = content::every_text(section);
    let (source, mut spec) = (source(section), spec::read(section, &kind));
    if let Spec::KubernetesManifest(KubernetesManifest { kustomize: Some(kustomize), .. }) =
        &mut spec
    {
        for (path, text) in kustomization_files(section, source.as_ref(), kustomize) {
            files.insert(text.origin.file.clone(), sha256(text.value.as_bytes()));
            texts.push(text.clone());
            kustomize.files.extend(path.map(|path| (path, text)));
        }
    }
    Module {
        at: section.place(),
        terraform_version: section.string("terraform_version"),
        source,
        vars: section.texts("vars"),
        env_vars: section.variables("env_vars"),
        var_files: var_files(section),
        drift_schedule: section.schedule("drift_schedule"),
        spec,
        options: spec::options(section),
        settings: section.json(),
        texts,
        files,
        source_digest: None,
        git: None,
        digest: None,
        kind,
    }
}

/// Returns the YAML files of a kustomization in the app directory, with their paths in the
/// component's source. A file outside that source has no path. Their template reads count like
/// those of a manifest. Does not read a kustomization in another repository.
fn kustomization_files(
    section: &Section<'_>,
    source: Option<&Source>,
    kustomize: &Kustomize,
) -> Vec<(Option<String>, Text)> {
    let base = match source {
        Some(Source { repo, directory, .. }) if repo == "." && directory == "." => "",
        Some(Source { repo, directory, .. }) if repo == "." => directory.as_str(),
        None => "",
        Some(_) => return Vec::new(),
    };
    let Some(top) = content::join(base, &kustomize.path) else {
        if let Some(inner) = section.section("kustomize") {
            let message = format!("the path {:?} leaves its repository", kustomize.path);
            inner.error("path", "path_escape", message, "name a directory inside the repository");
        }
        return Vec::new();
    };
    if top.is_empty() {
        return Vec::new();
    }
    let app = section.reader.app;
    let texts = kustomize::files(app, top).into_iter().filter_map(|path| {
        let text = app.text(path).filter(|text| !section.reader.is_too_much(Some(text)))?;
        let below = match base {
            "" => Some(path),
            base => path.strip_prefix(base).and_then(|rest| rest.strip_prefix('/')),
        };
        let text = Text { value: text.to_string(), origin: Origin::file(path) };
        Some((below.map(str::to_owned), text))
    });
    texts.collect()
}

fn var_files(section: &Section<'_>) -> Vec<Text> {
    let mut contents = Vec::new();
    for file in section.sections("var_file") {
        contents.extend(file.content("contents"));
        file.finish();
    }
    contents
}

/// `[public_repo]` or `[connected_repo]`.
pub fn source(section: &Section<'_>) -> Option<Source> {
    let public = repository(section, "public_repo", false);
    let connected = repository(section, "connected_repo", true);
    if public.is_some() && connected.is_some() {
        let message = "`public_repo` and `connected_repo` are both set".to_string();
        section.error("connected_repo", "two_sources", message, "keep one of them");
    }
    public.or(connected)
}

fn repository(section: &Section<'_>, key: &str, connected: bool) -> Option<Source> {
    let inner = section.section(key)?;
    let repo = inner.required("repo");
    let directory = inner.string("directory").unwrap_or_else(|| ".".into());
    let source = match content::join("", &directory) {
        Some(path) if path.is_empty() => ".".to_string(),
        Some(path) => path,
        None => {
            let message = format!("the directory {directory:?} leaves its repository");
            inner.error(
                "directory",
                "path_escape",
                message,
                "name a directory inside the repository",
            );
            directory
        }
    };
    let branch = inner.string("branch");
    if repo == "." && branch.is_some() {
        let message = "`branch` has no effect: a sync publishes the local directory".into();
        let remedy = "remove `branch`, or name the repository in `repo`";
        inner.warning("branch", "no_effect", message, remedy);
    }
    inner.finish();
    Some(Source { repo, directory: source, branch, connected })
}
