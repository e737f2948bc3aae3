//! References of kustomizations to content outside the component's source. A runner must not fetch
//! content that the vendor did not sign with the component.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    failure::{Failure, IoContext, Outcome, listed},
    manifest,
};

/// Names of a kustomization's file.
const FILES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Lists of a kustomization whose items are paths, or URLs that a build fetches.
const LISTS: [&str; 7] =
    ["resources", "bases", "components", "crds", "configurations", "generators", "transformers"];

/// Rejects remote references in all kustomizations below a directory.
pub fn check(root: &Path, enable_helm: bool) -> Outcome<()> {
    let mut found = vec![];
    visit(root, root, enable_helm, &mut found)?;
    match found.is_empty() {
        true => Ok(()),
        false => Err(Failure::refused(listed(
            "the kustomization refers to content outside the component's source",
            &found,
        ))),
    }
}

fn visit(root: &Path, directory: &Path, enable_helm: bool, found: &mut Vec<String>) -> Outcome<()> {
    let read = || format!("read {} of the component's source", directory.display());
    for entry in fs::read_dir(directory).context(read)? {
        let entry = entry.context(read)?;
        let path = entry.path();
        if entry.file_type().context(read)?.is_dir() {
            visit(root, &path, enable_helm, found)?;
        } else if FILES.iter().any(|name| entry.file_name() == *name) {
            let text = fs::read_to_string(&path).context(read)?;
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            for document in manifest::documents(&text) {
                let mut options = serde_saphyr::Options::default();
                options.with_snippet = false;
                // The tool may parse what this parser does not, and find a reference in it.
                let content = serde_saphyr::from_str_with_options(document.text, options);
                let content: Value = content.map_err(|error| {
                    let why = error.to_string();
                    let why = why.lines().next().unwrap_or_default();
                    Failure::refused(format!("invalid kustomization: {name}: {why}"))
                })?;
                let references = remote(&content, enable_helm).into_iter();
                found.extend(references.map(|reference| {
                    let line = text.lines().position(|line| line.contains(&reference));
                    let line = line.map_or(1, |at| at + 1);
                    format!("{name}:{line}: {reference}; copy it into the source")
                }));
            }
        }
    }
    Ok(())
}

/// Returns the remote references of a kustomization.
fn remote(kustomization: &Value, enable_helm: bool) -> Vec<String> {
    let lists = LISTS.iter().flat_map(|list| kustomization[*list].as_array()).flatten();
    let openapi = std::iter::once(&kustomization["openapi"]["path"]);
    let patches = ["patches", "patchesStrategicMerge", "patchesJson6902", "replacements"];
    let patches = patches.iter().flat_map(|list| kustomization[*list].as_array()).flatten();
    let patches = patches.map(|patch| if patch.is_string() { patch } else { &patch["path"] });
    let paths = lists.chain(openapi).chain(patches).filter_map(Value::as_str);
    let mut found: Vec<String> = paths.filter(|path| is_remote(path)).map(str::to_owned).collect();
    if enable_helm {
        let charts = ["helmCharts", "helmChartInflationGenerator"];
        let charts = charts.iter().flat_map(|list| kustomization[*list].as_array()).flatten();
        let repositories = charts.flat_map(|chart| [&chart["repo"], &chart["chartRepoUrl"]]);
        found.extend(repositories.filter_map(Value::as_str).map(str::to_owned));
    }
    found
}

/// Returns whether kustomize would fetch a reference: a URL, or an address of a git repository.
fn is_remote(reference: &str) -> bool {
    if reference.contains('\n') {
        return false;
    }
    let has_user = reference.split_once(':').is_some_and(|(host, _)| host.contains('@'));
    let first = reference.split('/').next().unwrap_or_default();
    let is_repository = reference.contains("?ref=")
        || reference.contains("?version=")
        || reference.contains(".git/")
        || reference.ends_with(".git")
        || reference.contains("_git/");
    reference.contains("://")
        || reference.contains("::")
        || has_user
        || is_repository
        || ["github.com", "gitlab.com", "bitbucket.org"].contains(&first)
        || reference.starts_with("gh:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_references_are_named_with_file_and_line() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("base")).unwrap();
        let write = |text: &str| {
            fs::write(dir.path().join("base/kustomization.yaml"), text).unwrap();
            check(dir.path(), true)
        };
        write("resources: [web.yaml, ../shared, ./v1.2/web.yaml]\npatches: [{path: p.yaml}]\n")
            .unwrap();
        write("patches:\n- patch: |\n    kind: ConfigMap\n    url: https://x\n").unwrap();
        for reference in [
            "http://169.254.169.254/latest/meta-data",
            "https://example.dev/web.yaml",
            "github.com/org/repo?ref=main",
            "github.com/org/repo",
            "git@example.dev:org/repo.git",
            "git::https://example.dev/repo",
            "example.dev/org/repo//base?ref=v1",
            "file:///etc",
        ] {
            let text = format!("namePrefix: a-\nresources:\n- web.yaml\n- '{reference}'\n");
            let message = write(&text).unwrap_err().message;
            let part = format!("base/kustomization.yaml:4: {reference}; copy it");
            assert!(message.contains(&part), "{message}");
        }
        // Two keys of one name are not valid, and a tool may read the second one.
        for text in ["resources: []\nresources: ['http://127.0.0.1/x']\n", "resources: [\n"] {
            let message = write(text).unwrap_err().message;
            assert!(message.contains("base/kustomization.yaml: "), "{message}");
        }
        assert!(write("---\nresources: [web.yaml]\n---\n").is_ok());
        let chart = "helmCharts:\n- name: web\n  repo: https://charts.example.dev\n";
        assert!(write(chart).unwrap_err().message.contains("kustomization.yaml:3"));
        assert!(write("helmCharts:\n- name: web\n").is_ok());
    }
}
