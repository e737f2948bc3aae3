//! Keys and sections that this release reads but does not act on. All occurrences of a kind become
//! one warning with their count.
//!
//! `schemas/app-config/keys.txt` lists every key of the format with its status. A test fails if the
//! reader knows a key that `keys.txt` does not list, so that no setting is ignored silently.
use std::{collections::BTreeMap, sync::LazyLock};

use super::reader::Reader;
use crate::{
    diagnostic::{Diagnostic, Location},
    document::{Document, Node, Spot, Table},
};

mod kinds;
#[cfg(test)]
mod tests;

use self::kinds::{KINDS, Per};

/// Status of each key of the format: `file key status`.
const KEYS: &str = include_str!("../../../schemas/app-config/keys.txt");

/// Files with several parts of a kind, each in its own table.
const CONTAINERS: [&str; 7] = [
    "break-glass",
    "inputs",
    "kubernetes-contexts",
    "operation-roles",
    "permissions",
    "policies",
    "secrets",
];

/// Effect of a key in this release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    ActedOn,
    /// Read, and reported in a warning of this kind.
    Warned(&'static str),
    /// Description, label or display order, on which no code could act.
    WithoutMeaningHere,
}

static STATUSES: LazyLock<BTreeMap<(&str, &str), Status>> =
    LazyLock::new(|| KEYS.lines().filter_map(status).collect());

fn status(line: &'static str) -> Option<((&'static str, &'static str), Status)> {
    let mut words = line.split_whitespace();
    let (file, key, status) = (words.next()?, words.next()?, words.next()?);
    let status = match status.split_once(':') {
        Some(("warned", kind)) => Status::Warned(kind),
        None if status == "acted-on" => Status::ActedOn,
        None if status == "without-meaning-here" => Status::WithoutMeaningHere,
        Some(_) | None => return None,
    };
    (!file.starts_with('#')).then_some(((file, key), status))
}

/// Kind of a file, named as in `schemas/app-config`.
pub fn file_kind(path: &str) -> Option<&'static str> {
    let (directory, inside) = path.split_once('/').unwrap_or(("", path));
    Some(match (directory, inside) {
        ("actions", _) => "action",
        ("branches", _) | ("", "branch.toml") => "branch",
        ("break_glass" | "permissions", _) => "role",
        ("components", _) => "component",
        ("inputs", _) => "input",
        ("input_groups", _) => "input-group",
        ("installs", _) => "install",
        ("policies", _) => "policy",
        ("runbooks", _) => "runbook",
        ("secrets", _) => "secret",
        ("", "break_glass.toml") => "break-glass",
        ("", "inputs.toml") => "inputs",
        ("", "installer.toml") => "installer",
        ("", "installs.toml") => "installs",
        ("", "kubernetes_contexts.toml") => "kubernetes-contexts",
        ("", "metadata.toml") => "metadata",
        ("", "operation_roles.toml") => "operation-roles",
        ("", "permissions.toml") => "permissions",
        ("", "policies.toml") => "policies",
        ("", "runner.toml") => "runner",
        ("", "sandbox.toml") => "sandbox",
        ("", "secrets.toml") => "secrets",
        ("", "stack.toml") => "stack",
        _ => return None,
    })
}

/// A key path without the indices of lists: `steps.0.name` becomes `steps.name`.
#[cfg(test)]
pub fn without_indices(path: &str) -> String {
    let is_index = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    path.split('.').filter(|part| !is_index(part)).collect::<Vec<_>>().join(".")
}

/// Settings that this release reads but does not act on, counted by kind, and by component type or
/// trigger within the kind.
#[derive(Debug, Default)]
pub struct IgnoredSettings(BTreeMap<(&'static str, String), Occurrences>);

#[derive(Debug)]
struct Occurrences {
    count: usize,
    file: String,
    place: Location,
}

impl IgnoredSettings {
    pub fn add(&mut self, kind: &'static str, name: &str, file: &str, place: Location) {
        let found = self.0.entry((kind, name.to_string())).or_insert_with(|| Occurrences {
            count: 0,
            file: file.to_string(),
            place,
        });
        found.count += 1;
        if (file, place.line, place.column) < (&found.file, found.place.line, found.place.column) {
            (found.file, found.place) = (file.to_string(), place);
        }
    }

    pub fn into_diagnostics(self) -> impl Iterator<Item = Diagnostic> {
        self.0.into_iter().filter_map(|((id, name), found)| {
            let kind = KINDS.iter().find(|kind| kind.id == id)?;
            let Occurrences { count, file, mut place } = found;
            let mut message = format!("{count} x {}: {}", kind.what, kind.behavior);
            if kind.is_secret {
                // Output that shows the line would show the secret value.
                message += &format!(" (first in line {})", place.line);
                place = Location::default();
            }
            let named = |text: &str| text.replace("{}", &name);
            let warning = Diagnostic::warning(kind.code, named(&message), named(kind.remedy));
            Some(warning.at(&file, place))
        })
    }
}

/// Counts the keys of a file that are read but not acted on.
pub fn look_for(document: &Document, found: &mut IgnoredSettings) {
    let Some(file) = file_kind(&document.file) else { return };
    let mut search = Search { document, file, found, parts: Vec::new() };
    search.table(&document.root, "");
}

struct Search<'s> {
    document: &'s Document,
    file: &'static str,
    found: &'s mut IgnoredSettings,
    /// Kinds that are already counted for this file. Unused for a file with several parts.
    parts: Vec<&'static str>,
}

impl Search<'_> {
    fn table(&mut self, table: &Table, path: &str) {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(_, entry)| entry.key.start);
        for (key, entry) in entries {
            let path = format!("{path}{key}");
            match STATUSES.get(&(self.file, path.as_str())) {
                Some(Status::Warned(kind)) => self.key(kind, &entry.spot, entry.key.clone()),
                Some(Status::ActedOn | Status::WithoutMeaningHere) => {
                    self.inner(&entry.spot, &format!("{path}."));
                }
                None => {}
            }
        }
    }

    fn inner(&mut self, spot: &Spot, path: &str) {
        match &spot.node {
            Node::Table(table) => self.table(table, path),
            Node::Array(items) => items.iter().for_each(|item| self.inner(item, path)),
            Node::Text(_) | Node::Integer(_) | Node::Bool(_) | Node::Other(_) => {}
        }
    }

    fn key(&mut self, id: &'static str, spot: &Spot, key: std::ops::Range<usize>) {
        // `permissions/*.toml` and `break_glass/*.toml` have the same keys, but count as different
        // kinds.
        let is_break_glass = self.document.file.starts_with("break_glass/");
        let id = if is_break_glass && id == "permission_role" { "break_glass" } else { id };
        let Some(kind) = KINDS.iter().find(|kind| kind.id == id) else { return };
        let is_container = CONTAINERS.contains(&self.file);
        match kind.per {
            // The reader of the section counts this kind; see `Reader::ignored_settings`.
            Per::Reader => {}
            Per::Part if is_container => self.each(id, spot, key),
            Per::Part if self.parts.contains(&id) => {}
            Per::Part => {
                self.parts.push(id);
                self.add(id, key);
            }
            Per::Key => self.each(id, spot, key),
        }
    }

    /// Counts one occurrence per table of a list, one for all other items of the list, and one for
    /// any other value. Does not count an empty string or `false`, which have no effect.
    fn each(&mut self, id: &'static str, spot: &Spot, key: std::ops::Range<usize>) {
        match &spot.node {
            Node::Bool(false) => {}
            Node::Text(text) if text.is_empty() || text == "false" => {}
            Node::Array(items) => {
                for item in items.iter().filter(|item| matches!(item.node, Node::Table(_))) {
                    self.add(id, item.span.clone());
                }
                if items.iter().any(|item| !matches!(item.node, Node::Table(_))) {
                    self.add(id, key);
                }
            }
            Node::Table(_) => self.add(id, key),
            Node::Text(_) | Node::Integer(_) | Node::Bool(_) | Node::Other(_) => {
                self.add(id, self.document.inner(spot));
            }
        }
    }

    fn add(&mut self, id: &'static str, at: std::ops::Range<usize>) {
        self.found.add(id, "", &self.document.file, self.document.place(at));
    }
}

impl Reader<'_> {
    /// Counts an occurrence that only the reader of the section can recognize.
    pub fn ignored_setting(&self, kind: &'static str, name: &str, file: &str, place: Location) {
        debug_assert!(KINDS.iter().any(|known| known.id == kind), "{kind} is not in KINDS");
        self.found_ignored(|found| found.add(kind, name, file, place));
    }
}
