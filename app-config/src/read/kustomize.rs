//! The YAML of a kustomization: what lies below it, and what lies elsewhere in the app directory and is
//! named by it (`../../base`).
use std::collections::BTreeSet;

use super::content::join;
use crate::tree::Tree;

/// The files by which a directory is a kustomization.
const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Kustomizations may name each other in a circle; real ones are a handful.
const MOST: usize = 200;

/// Every YAML file that belongs to the kustomization in `top`, each once.
pub fn files(app: &Tree, top: String) -> BTreeSet<&str> {
    let (mut found, mut left) = (BTreeSet::new(), vec![top]);
    let mut seen: BTreeSet<String> = BTreeSet::new();
    while let Some(place) = left.pop() {
        if place.is_empty() || seen.len() >= MOST || !seen.insert(place.clone()) {
            continue;
        }
        let prefix = format!("{place}/");
        for (path, _) in app.iter().filter(|(path, _)| *path == place || path.starts_with(&prefix))
        {
            let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
            let is_new = is_yaml(path) && found.insert(path);
            if NAMES.contains(&name) && (is_new || !is_yaml(path)) {
                left.extend(named(app.text(path).unwrap_or_default(), directory));
            }
        }
    }
    found
}

fn is_yaml(path: &str) -> bool {
    path.ends_with(".yaml") || path.ends_with(".yml")
}

/// Paths that lead out of the kustomization's own directory. What else looks like one names nothing
/// that is there.
fn named(text: &str, directory: &str) -> Vec<String> {
    let words = text.split([' ', '\t', '\r', '\n', ',', '[', ']', '"', '\'']);
    let away = words.filter(|word| word.starts_with("../") || word.starts_with("./.."));
    away.filter_map(|word| join(directory, word)).collect()
}
