//! Content keys: text, or `./file` for the text of a file. The base directory of `./file` depends
//! on the kind of the file with the key, not on the location of that file.
use std::collections::BTreeMap;

use domain::digest::Digest;

use super::{reader::Reader, section::Section};
use crate::{
    diagnostic::{Diagnostic, Severity},
    document::{Document, Node, Spot, Table},
    model::{FileRef, PLUGIN_KINDS},
    text::{Origin, Text},
    tree::sha256,
};

/// Content keys of components, the sandbox and actions: list of tables (empty for the top level)
/// and key. The list distinguishes a content key from a variable called `manifest`. `command` is
/// absent, because it names a file of the step's own source.
const CONTENT_KEYS: [(&str, &str); 5] = [
    ("", "manifest"),
    ("steps", "inline_contents"),
    ("values_file", "contents"),
    ("values_file", "source"),
    ("var_file", "contents"),
];

/// True if the key path (`steps.0.inline_contents`) is a content key. `[steps]` counts as
/// `[[steps]]`.
fn is_followed(path: &str) -> bool {
    let parts: Vec<&str> = path.split('.').collect();
    let (list, key) = match parts.as_slice() {
        [key] => ("", *key),
        [list, key] => (*list, *key),
        [list, at, key] if at.bytes().all(|byte| byte.is_ascii_digit()) => (*list, *key),
        _ => return false,
    };
    CONTENT_KEYS.contains(&(list, key))
}

/// Prefixes of remote texts, besides URLs with a scheme (`git://`).
const REMOTE: [&str; 10] = [
    "git::",
    "git@",
    "hg::",
    "s3::",
    "gcs::",
    "http::",
    "file:",
    "github.com/",
    "gitlab.com/",
    "bitbucket.org/",
];

/// Keys whose values are never templates: names, types, dependencies and repositories.
const NEVER_TEMPLATES: [&str; 6] =
    ["name", "type", "dependencies", "connected_repo", "public_repo", "helm_repo"];

impl Section<'_> {
    /// Text of a content key.
    pub fn content(&self, key: &str) -> Option<Text> {
        let written = self.text(key)?;
        follow(self.reader, self.document, written)
    }
}

/// All texts of a file that may be templates, and the content files that it names.
pub fn every_text(section: &Section<'_>) -> (Vec<Text>, BTreeMap<String, Digest>) {
    let mut collector = TextCollector { section, texts: Vec::new(), files: BTreeMap::new() };
    collector.table(section.table, "", true);
    (collector.texts, collector.files)
}

struct TextCollector<'a> {
    section: &'a Section<'a>,
    texts: Vec<Text>,
    files: BTreeMap<String, Digest>,
}

impl TextCollector<'_> {
    fn table(&mut self, table: &Table, path: &str, top: bool) {
        for (key, entry) in table {
            // Steps and triggers have these keys, too. In other tables, a variable may have such a
            // name.
            let is_part = top || is_item(path, "steps") || is_item(path, "triggers");
            if is_part && NEVER_TEMPLATES.contains(&key.as_str()) {
                continue;
            }
            let path = format!("{path}{key}");
            self.spot(&entry.spot, &path, is_followed(&path));
        }
    }

    fn spot(&mut self, spot: &Spot, path: &str, followed: bool) {
        match &spot.node {
            Node::Text(_) => {
                let Some(written) = self.section.text_of(path, spot) else { return };
                let (reader, document) = (self.section.reader, self.section.document);
                let text = if followed { follow(reader, document, written) } else { Some(written) };
                let Some(text) = text else { return };
                if text.origin.key.is_empty() {
                    self.files.insert(text.origin.file.clone(), sha256(text.value.as_bytes()));
                }
                self.texts.push(text);
            }
            Node::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.spot(item, &format!("{path}.{index}"), followed);
                }
            }
            Node::Table(table) => self.table(table, &format!("{path}."), false),
            Node::Integer(_) | Node::Bool(_) | Node::Other(_) => {}
        }
    }
}

/// True if the path ends at an item of a top-level list of tables: `steps.0.`.
fn is_item(path: &str, list: &str) -> bool {
    let index = path.strip_prefix(list).and_then(|rest| rest.strip_prefix('.'));
    index
        .and_then(|rest| rest.strip_suffix('.').or(Some(rest)))
        .is_some_and(|index| index.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the text, or the content of the file that the text names. Returns `None` if it reported
/// a finding.
fn follow(reader: &Reader<'_>, document: &Document, written: Text) -> Option<Text> {
    let value = written.value.trim();
    if value.contains('\n') {
        return Some(written);
    }
    if is_remote(value) {
        return remote(reader, document, &written, value);
    }
    if !value.starts_with("./") && !value.starts_with("../") {
        return Some(written);
    }
    let file = document.file.clone();
    let Some(path) = join(base(&file), value) else {
        let message = format!("{value:?} leaves the app directory");
        finding(reader, &written, "path_escape", message, "name a file inside the app directory");
        return None;
    };
    let found = reader.app.text(&path);
    let resolved = found.is_some().then(|| path.clone());
    reader.record_file_ref(FileRef { file, reference: value.to_string(), resolved });
    if is_too_much(reader, &written, found) {
        return None;
    }
    let Some(text) = found.map(str::to_string) else {
        let exists = reader.app.get(&path).is_some();
        let message = if exists {
            format!("the file {path} is not UTF-8 text")
        } else {
            format!("{value:?} names the file {path}, which does not exist")
        };
        finding(
            reader,
            &written,
            "missing_file",
            message,
            "add the file as UTF-8 text, or correct its path",
        );
        return None;
    };
    Some(Text { value: text, origin: Origin::file(path) })
}

/// True if the whole text is one remote address. The case of its prefix does not matter.
fn is_remote(text: &str) -> bool {
    if text.contains(char::is_whitespace) {
        return false;
    }
    let begins = |prefix: &&str| {
        text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    let scheme = text.split_once("://").map(|(scheme, _)| scheme).unwrap_or_default();
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let has_scheme =
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_scheme);
    has_scheme || REMOTE.iter().any(begins)
}

/// Reads the content of a URL from the directory, where an allowed fetch stored it. The content is
/// then part of the bundle and of its digest.
fn remote(reader: &Reader<'_>, document: &Document, written: &Text, url: &str) -> Option<Text> {
    let path = remote_path(url);
    if let Some(text) = reader.app.text(&path) {
        // A bundle of another client may contain larger files than this client fetches, and name
        // them repeatedly.
        if is_too_much(reader, written, Some(text)) {
            return None;
        }
        return Some(Text { value: text.to_string(), origin: Origin::file(path) });
    }
    reader.record_remote(url);
    let message = format!("cannot read {url:?}: remote content is not fetched");
    let remedy = "save the content in the app directory and name the file as ./FILE, or fetch it with --allow-remote";
    let severity = if is_refused_later(reader, document) {
        Severity::Warning
    } else {
        severity(&written.origin.file)
    };
    report(reader, severity, written, "remote_content", (message, remedy));
    None
}

/// True if a later step rejects the absent text anyway: an action when it runs, or a component
/// without a plugin when it is deployed. The finding is then only a warning.
fn is_refused_later(reader: &Reader<'_>, document: &Document) -> bool {
    match base(&document.file) {
        "actions" => true,
        "components" => {
            let kind = document.root.get("type").and_then(|entry| entry.spot.node.scalar());
            let is_known =
                |kind: &String| PLUGIN_KINDS.iter().any(|(known, _)| *known == kind.as_str());
            let is_pinned = |kind: &String| reader.plugins.iter().any(|p| p.name == *kind);
            kind.is_some_and(|kind| is_known(&kind) && !is_pinned(&kind))
        }
        _ => false,
    }
}

/// Counts the size of a text before it is copied. If the total is too large, reports a finding and
/// returns true.
fn is_too_much(reader: &Reader<'_>, written: &Text, text: Option<&str>) -> bool {
    let too_much = reader.is_too_much(text);
    if too_much {
        let message =
            "the files that this directory names exceed the maximum total size".to_string();
        let remedy = "name each file once, and store data outside of the app directory";
        finding(reader, written, "too_much", message, remedy);
    }
    too_much
}

/// Path in the directory for the fetched text of a URL.
pub fn remote_path(url: &str) -> String {
    let digest = sha256(url.as_bytes()).to_string();
    format!(".remote/{}", digest.trim_start_matches("sha256:"))
}

/// Severity of a finding in this file. Roles, policies and readmes are not deployed, so their
/// findings do not prevent publishing.
fn severity(file: &str) -> Severity {
    let deployed = file == "sandbox.toml" || ["components", "actions"].contains(&base(file));
    if deployed { Severity::Error } else { Severity::Warning }
}

fn finding(reader: &Reader<'_>, at: &Text, code: &'static str, message: String, remedy: &str) {
    report(reader, severity(&at.origin.file), at, code, (message, remedy));
}

fn report(
    reader: &Reader<'_>,
    severity: Severity,
    at: &Text,
    code: &'static str,
    texts: (String, &str),
) {
    let Text { value, origin } = at;
    let finding = Diagnostic::new(severity, code, texts.0, texts.1);
    reader.report(finding.at(&origin.file, origin.place(value.chars().count())));
}

fn base(file: &str) -> &'static str {
    match file.split('/').next().unwrap_or_default() {
        "components" => "components",
        "actions" => "actions",
        "permissions" | "permissions.toml" | "break_glass" | "break_glass.toml" => "permissions",
        "policies" => "policies",
        _ => "",
    }
}

/// Joins two paths. `None` if the result is outside the tree.
pub fn join(base: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in base.split('/').chain(relative.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_is_resolved_by_the_kind_of_the_naming_file() {
        assert_eq!(
            join(base("components/images/a.toml"), "./v.yaml").unwrap(),
            "components/v.yaml"
        );
        assert_eq!(join(base("break_glass.toml"), "./b.json").unwrap(), "permissions/b.json");
        assert_eq!(join(base("policies.toml"), "./policies/a.rego").unwrap(), "policies/a.rego");
        assert_eq!(join(base("components/a.toml"), "../x"), Some("x".into()));
        assert_eq!(join(base("components/a.toml"), "../../x"), None);
    }
}
