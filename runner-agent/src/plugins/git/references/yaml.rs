//! Texts of a YAML file with their lines.
use serde_json::Value;

/// Returns the texts of a file in the order of the file. A file that is not YAML has none.
pub(super) fn texts(text: &str) -> Vec<String> {
    let mut options = serde_saphyr::Options::default();
    options.with_snippet = false;
    let mut found = vec![];
    if let Ok(value) = serde_saphyr::from_str_with_options::<Value>(text, options) {
        collect(value, &mut found);
    }
    let at = |scalar: &String| line_of(text, scalar);
    found.sort_by_key(at);
    found.dedup();
    found
}

fn collect(value: Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text),
        Value::Array(items) => items.into_iter().for_each(|item| collect(item, into)),
        Value::Object(members) => members.into_values().for_each(|item| collect(item, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the line of a text, from 1: the first line that contains it outside a comment.
pub(super) fn line_of(text: &str, scalar: &str) -> u32 {
    let first = scalar.lines().next().unwrap_or_default();
    let has_scalar = |(_, line): &(u32, &str)| {
        let content = line.split(" #").next().unwrap_or_default();
        !content.trim_start().starts_with('#') && content.contains(first)
    };
    let found = (1..).zip(text.lines()).find(has_scalar);
    found.map_or(1, |(line, _)| line)
}
