//! Variables that templates name, as written.
//!
//! This is a textual search. It also finds variables in texts that do not parse or that are not
//! Stead templates. See [`crate::refs`] for actual reads.
use std::collections::BTreeSet;

use crate::{
    document::{Document, Node, Table},
    tree::Tree,
};

/// Field chains from the root of the state (`nuon.install.id`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variables {
    /// Variables in the strings of TOML files.
    pub settings: BTreeSet<String>,
    /// Variables in all other text files.
    pub files: BTreeSet<String>,
}

/// Collects the variables that the templates of a directory name.
pub fn variables(app: &Tree) -> Variables {
    let mut found = Variables::default();
    for (path, file) in app.iter() {
        if !path.ends_with(".toml") {
            if let Ok(text) = std::str::from_utf8(&file.bytes) {
                scan(text, &mut found.files);
            }
        } else if let Ok(document) = Document::parse(path, &file.bytes) {
            strings(&document.root, &mut found.settings);
        }
    }
    found
}

fn strings(table: &Table, found: &mut BTreeSet<String>) {
    table.values().for_each(|entry| node(&entry.spot.node, found));
}

fn node(from: &Node, found: &mut BTreeSet<String>) {
    match from {
        Node::Text(text) => scan(text, found),
        Node::Array(items) => items.iter().for_each(|item| node(&item.node, found)),
        Node::Table(table) => strings(table, found),
        Node::Integer(_) | Node::Bool(_) | Node::Other(_) => {}
    }
}

fn scan(text: &str, found: &mut BTreeSet<String>) {
    let mut rest = text;
    while let Some(open) = rest.find("{{") {
        rest = action(&rest[open + 2..], found);
    }
}

/// Scans an action up to its closing braces. Returns the rest of the text.
fn action<'t>(inside: &'t str, found: &mut BTreeSet<String>) -> &'t str {
    let start = inside.strip_prefix('-').unwrap_or(inside).trim_start();
    if start.starts_with("/*") {
        return start.find("*/").map_or("", |end| &start[end + 2..]);
    }
    let mut rest = inside;
    // True if a following dot reads a field of the previous term. Otherwise, the dot is the root.
    let mut goes_on = false;
    while let Some(c) = rest.chars().next() {
        match c {
            '}' if rest.starts_with("}}") => return &rest[2..],
            '"' | '\'' | '`' => {
                rest = quoted(rest, c);
                goes_on = false;
            }
            '.' => {
                let end = rest.find(|c: char| !is_word(c) && c != '.').unwrap_or(rest.len());
                let chain = rest[1..end].trim_end_matches('.');
                if !goes_on && chain.split('.').next() == Some("nuon") {
                    found.insert(chain.to_string());
                }
                rest = &rest[end.max(1)..];
                goes_on = true;
            }
            // `$` alone is the root of the state. `$name` is a variable.
            '$' => {
                rest = &rest[1..];
                goes_on = false;
            }
            _ => {
                goes_on = is_word(c) || matches!(c, ')' | ']');
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    rest
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Text after a quoted string. If the closing quote is missing, the text after the opening quote.
fn quoted(text: &str, quote: char) -> &str {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' if quote != '`' => {
                characters.next();
            }
            '\n' if quote != '`' => break,
            c if c == quote => return &text[at + 1..],
            _ => {}
        }
    }
    &text[1..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chains_from_the_root_are_found() {
        let cases: [(&str, &[&str]); 11] = [
            ("{{.nuon.install.id}}", &["nuon.install.id"]),
            ("{{- $.nuon.a -}} .nuon.no {{ $x.nuon.b }}", &["nuon.a"]),
            ("{{ (index .nuon.components \"a.b\").outputs.x }}", &["nuon.components"]),
            ("{{/* .nuon.x */}}{{ `}}.nuon.y` }}{{ \"\\\".nuon.z\" }}", &[]),
            ("{{ nuon.install.id }}{{ request.nuon.x }}", &[]),
            ("{{ or .nuon.a \"\" .nuon.b }}", &["nuon.a", "nuon.b"]),
            ("{{ .nuon.it's }} {{ .nuon.b }}", &["nuon.b", "nuon.it"]),
            ("{{ .nuon.open", &["nuon.open"]),
            ("{{ .nuon.a.* }}", &["nuon.a"]),
            ("{{", &[]),
            ("{{/* open", &[]),
        ];
        for (text, expected) in cases {
            let mut found = BTreeSet::new();
            scan(text, &mut found);
            assert_eq!(found.into_iter().collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
