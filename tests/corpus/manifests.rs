//! Kubernetes objects in the manifests and charts of an app, found without rendering them.
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    app::{App, text},
    sources::Sources,
};

/// Returns every document of the app's manifests, kustomizations and charts.
pub(crate) fn of(app: &App, sources: &Sources) -> Vec<String> {
    let mut files: BTreeSet<PathBuf> = BTreeSet::new();
    let mut texts = vec![];
    for component in &app.components {
        if let Some(manifest) = text(&component.settings, "manifest") {
            match manifest.strip_prefix("./") {
                Some(path) => drop(files.insert(app.dir.join("components").join(path))),
                None => texts.push(manifest),
            }
        }
        let on_cluster = ["helm_chart", "kubernetes_manifest"].contains(&component.kind.as_str());
        if let Some(dir) = component.source().and_then(|source| sources.directory(&source))
            && on_cluster
        {
            yaml_files(&dir, &mut files);
        }
    }
    texts.extend(files.iter().filter_map(|file| fs::read_to_string(file).ok()));
    let documents = texts.iter().flat_map(|text| text.split("\n---"));
    documents.map(str::to_owned).collect()
}

fn yaml_files(dir: &Path, files: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.extension().and_then(|end| end.to_str()) {
            _ if path.is_dir() => yaml_files(&path, files),
            Some("yaml" | "yml") => drop(files.insert(path)),
            _ => {}
        }
    }
}

/// Returns the value of a top-level key of a document.
fn value<'d>(document: &'d str, key: &str) -> Option<&'d str> {
    let line = document.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let line = line.split(" #").next().unwrap_or_default();
    let value = line.trim().trim_matches(['"', '\'']);
    (!value.is_empty() && !value.contains("{{")).then_some(value)
}

/// Returns group, version and kind of all documents.
pub(crate) fn kinds(documents: &[String]) -> BTreeSet<(String, String, String)> {
    let kind = |document: &String| {
        let (api, kind) = (value(document, "apiVersion")?, value(document, "kind")?);
        let (group, version) = api.split_once('/').unwrap_or(("", api));
        Some((group.to_owned(), version.to_owned(), kind.to_owned()))
    };
    documents.iter().filter_map(kind).filter(|(_, _, kind)| kind != "Kustomization").collect()
}

/// Returns the names of the namespaces that the documents create.
pub(crate) fn namespaces(documents: &[String]) -> BTreeSet<String> {
    let of_kind = documents.iter().filter(|one| value(one, "kind") == Some("Namespace"));
    let name = |document: &String| {
        let line = document.lines().find_map(|line| line.strip_prefix("  name:"))?;
        Some(line.trim().trim_matches(['"', '\'']).to_owned())
    };
    of_kind.filter_map(name).collect()
}

/// Returns true if a document defines this kind.
pub(crate) fn defines(documents: &[String], group: &str, kind: &str) -> bool {
    let mut of_kind = documents.iter().filter(|one| one.contains("kind: CustomResourceDefinition"));
    of_kind.any(|one| {
        one.contains(&format!("group: {group}")) && one.contains(&format!("kind: {kind}"))
    })
}

/// Returns a definition that accepts every object of a kind.
pub(crate) fn definition(group: &str, kind: &str, versions: &BTreeSet<String>) -> Value {
    let plural = plural(kind);
    let is_first = |version: &String| versions.first() == Some(version);
    let version = |version: &String| {
        json!({
            "name": version, "served": true, "storage": is_first(version),
            "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": definition_name(group, kind),
            // Groups of Kubernetes itself need this annotation.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

pub(crate) fn definition_name(group: &str, kind: &str) -> String {
    format!("{}.{group}", plural(kind))
}

fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o']) => format!("{stem}ies"),
        _ if kind.ends_with(['s', 'x']) => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

/// Returns the resource name of a kind, such as `deployments.apps`.
pub(crate) fn resource(resources: &[&str], api: &str, kind: &str) -> String {
    let group = api.split_once('/').map_or("", |(group, _)| group);
    let matches = |resource: &&&str| {
        let (plural, of) = resource.split_once('.').unwrap_or((resource, ""));
        of == group && plural.starts_with(&kind.to_lowercase()[..kind.len() - 1])
    };
    let exact = [plural(kind), group.to_owned()];
    let exact = exact.join(".").trim_end_matches('.').to_owned();
    if resources.contains(&exact.as_str()) {
        return exact;
    }
    resources.iter().find(matches).map_or(exact, |found| (*found).to_owned())
}

/// Renders the variables of a short text with an install's state. Other templates stay.
pub(crate) fn rendered(text: &str, state: &Value) -> String {
    let mut rendered = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((variable, tail)) = after.split_once("}}") else { break };
        let path = variable.trim().trim_start_matches('.').replace('.', "/");
        let value = state.pointer(&format!("/{path}")).and_then(Value::as_str);
        rendered.push_str(before);
        rendered.push_str(value.unwrap_or(variable));
        rest = tail;
    }
    rendered + rest
}
