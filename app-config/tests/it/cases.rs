//! Templates for which the corpus has cases.
use app_config::Tree;
use serde_json::Value;

/// Template of a case: a whole file, or a string at a key path in a TOML file.
pub fn text_of(tree: &Tree, case: &Value) -> String {
    let file = tree.text(case["file"].as_str().unwrap()).unwrap();
    let Some(key) = case["key"].as_str().filter(|key| !key.is_empty()) else {
        return file.to_string();
    };
    let document: toml::Value = toml::from_str(file).unwrap();
    find(&document, key).unwrap_or_else(|| panic!("{key} in {}", case["file"])).to_string()
}

/// Finds a string by key path. A key may contain dots, so every split of the path is tried.
fn find<'v>(value: &'v toml::Value, path: &str) -> Option<&'v str> {
    if path.is_empty() {
        return value.as_str();
    }
    let cuts = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    cuts.into_iter().find_map(|cut| {
        let (head, rest) = (&path[..cut], path[cut..].trim_start_matches('.'));
        let inner = match value.as_array() {
            Some(items) => items.get(head.parse::<usize>().ok()?)?,
            None => value.as_table()?.get(head)?,
        };
        find(inner, rest)
    })
}
