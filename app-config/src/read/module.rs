//! What a component and the sandbox have in common.
use super::{content, section::Section, spec};
use crate::model::{Module, Source};

pub fn read(section: &Section<'_>, kind: String) -> Module {
    let (texts, files) = content::every_text(section);
    Module {
        terraform_version: section.string("terraform_version"),
        source: source(section),
        vars: section.texts("vars"),
        env_vars: section.texts("env_vars"),
        var_files: var_files(section),
        drift_schedule: section.schedule("drift_schedule"),
        spec: spec::read(section, &kind),
        options: spec::options(section),
        settings: section.json(),
        texts,
        files,
        source_digest: None,
        digest: None,
        kind,
    }
}

fn var_files(section: &Section<'_>) -> Vec<crate::text::Text> {
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
        let message = "there is both a `public_repo` and a `connected_repo`".to_string();
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
            inner.error("directory", "path_escape", message, "name a directory inside it");
            directory
        }
    };
    let branch = inner.string("branch");
    inner.finish();
    Some(Source { repo, directory: source, branch, connected })
}
