//! YAML files of a kustomization: files below it, and files elsewhere in the app directory that it
//! names (`../../base`).
use std::collections::BTreeSet;

use super::content::join;
use crate::tree::Tree;

/// Files that make a directory a kustomization.
const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Maximum number of visited directories. Kustomizations may name each other in a cycle; real apps
/// have a handful.
const MAX_DIRECTORIES: usize = 200;

/// YAML files of the kustomization in `top`, up to the limit of [`MAX_DIRECTORIES`].
pub fn files(app: &Tree, top: String) -> BTreeSet<&str> {
    let (mut found, mut left) = (BTreeSet::new(), vec![top]);
    let mut seen: BTreeSet<String> = BTreeSet::new();
    while let Some(place) = left.pop() {
        if place.is_empty() || seen.len() >= MAX_DIRECTORIES || !seen.insert(place.clone()) {
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

/// Returns the paths in a file that point outside `directory`. Other text can resemble such a path,
/// and has no effect unless a file has that path.
fn named(text: &str, directory: &str) -> Vec<String> {
    let words = text.split([' ', '\t', '\r', '\n', ',', '[', ']', '"', '\'']);
    let away = words.filter(|word| word.starts_with("../") || word.starts_with("./.."));
    away.filter_map(|word| join(directory, word)).collect()
}
