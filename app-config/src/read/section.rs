//! Reads the keys of one table by type, and records each key that it reads.
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use super::reader::Reader;
use crate::{
    diagnostic::{Diagnostic, Location, Severity, nearest},
    document::{Document, Entry, Node, Spot, Table, json},
    template::is_template,
    text::{Origin, Text},
};

pub struct Section<'d> {
    pub reader: &'d Reader<'d>,
    pub document: &'d Document,
    pub table: &'d Table,
    /// Key path of the table: empty at the top level, else `steps.0.`.
    pub path: String,
    /// Location of the table, for findings about absent keys.
    at: Range<usize>,
    seen: RefCell<BTreeSet<String>>,
}

impl<'d> Section<'d> {
    pub fn root(reader: &'d Reader<'d>, document: &'d Document) -> Self {
        Section::of(reader, document, &document.root, String::new(), 0..0)
    }

    fn of(
        reader: &'d Reader<'d>,
        document: &'d Document,
        table: &'d Table,
        path: String,
        at: Range<usize>,
    ) -> Self {
        Section { reader, document, table, path, at, seen: RefCell::default() }
    }

    pub fn file(&self) -> &str {
        &self.document.file
    }

    pub fn entry(&self, key: &str) -> Option<&'d Entry> {
        self.seen.borrow_mut().insert(key.to_string());
        self.table.get(key)
    }

    /// Reads a scalar. Numbers and booleans become strings. An empty string counts as absent.
    pub fn text(&self, key: &str) -> Option<Text> {
        self.scalar(key).filter(|text| !text.value.is_empty())
    }

    /// Reads a scalar, including an empty string.
    pub fn scalar(&self, key: &str) -> Option<Text> {
        let entry = self.entry(key)?;
        let text = self.text_of(key, &entry.spot);
        if text.is_none() {
            self.mistyped(key, entry, "a string");
        }
        text
    }

    pub fn string(&self, key: &str) -> Option<String> {
        self.text(key).map(|text| text.value)
    }

    /// Reads a required string. If the key is absent or empty, reports an error and returns an
    /// empty string.
    pub fn required(&self, key: &str) -> String {
        self.required_text(key).value
    }

    /// Reads a required string with its location, as [`Section::required`] does.
    pub fn required_text(&self, key: &str) -> Text {
        if let Some(text) = self.text(key) {
            return text;
        }
        if self.table.get(key).is_none_or(|entry| entry.spot.node.scalar().is_some()) {
            let message = format!("`{}{key}` is missing", self.path);
            let remedy = format!("add {key} = \"…\"");
            self.finding(Severity::Error, "missing_key", self.at.clone(), message, &remedy);
        }
        Text::default()
    }

    /// Reads one of several known values. An unknown value is only a warning: a later version may
    /// define it.
    pub fn one_of(&self, key: &str, what: &str, known: &[&str]) -> Option<String> {
        let word = self.string(key)?;
        if !known.contains(&word.as_str()) && !is_template(&word) {
            let message = format!("unknown {what} `{word}`");
            let remedy = match nearest(&word, known.iter().copied()) {
                Some(suggestion) => format!("did you mean `{suggestion}`?"),
                None => format!("use one of: {}", known.join(", ")),
            };
            self.warning(key, "bad_value", message, &remedy);
        }
        Some(word)
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        let entry = self.entry(key)?;
        let flag = match &entry.spot.node {
            Node::Bool(flag) => Some(*flag),
            Node::Text(text) => text.parse().ok(),
            Node::Integer(_) | Node::Other(_) | Node::Array(_) | Node::Table(_) => None,
        };
        if flag.is_none() {
            self.mistyped(key, entry, "true or false");
        }
        flag
    }

    pub fn integer(&self, key: &str) -> Option<i64> {
        let entry = self.entry(key)?;
        let number = entry.spot.node.scalar().and_then(|text| text.parse().ok());
        if number.is_none() {
            self.mistyped(key, entry, "an integer");
        }
        number
    }

    pub fn strings(&self, key: &str) -> Vec<String> {
        let Some(entry) = self.entry(key) else { return Vec::new() };
        let strings = match &entry.spot.node {
            Node::Array(items) => items.iter().map(|item| item.node.scalar()).collect(),
            Node::Text(_) | Node::Integer(_) | Node::Bool(_) | Node::Other(_) | Node::Table(_) => {
                None
            }
        };
        strings.unwrap_or_else(|| {
            self.mistyped(key, entry, "a list of strings");
            Vec::new()
        })
    }

    /// Reads a table of scalars.
    pub fn texts(&self, key: &str) -> BTreeMap<String, Text> {
        let Some(section) = self.section(key) else { return BTreeMap::new() };
        section.scalars()
    }

    /// Reads this table as a table of scalars.
    pub fn scalars(&self) -> BTreeMap<String, Text> {
        self.table
            .keys()
            .filter_map(|name| self.scalar(name).map(|text| (name.clone(), text)))
            .collect()
    }

    pub fn section(&self, key: &str) -> Option<Section<'d>> {
        let entry = self.entry(key)?;
        match &entry.spot.node {
            Node::Table(table) => Some(self.inner(format!("{key}."), table, entry.key.clone())),
            Node::Text(_) | Node::Integer(_) | Node::Bool(_) | Node::Other(_) | Node::Array(_) => {
                self.mistyped(key, entry, "a table");
                None
            }
        }
    }

    /// Tables of `[[key]]`. A single `[key]` counts as one.
    pub fn sections(&self, key: &str) -> Vec<Section<'d>> {
        let Some(entry) = self.entry(key) else { return Vec::new() };
        let items = match &entry.spot.node {
            Node::Table(table) => {
                return vec![self.inner(format!("{key}."), table, entry.key.clone())];
            }
            Node::Array(items) => items,
            Node::Text(_) | Node::Integer(_) | Node::Bool(_) | Node::Other(_) => {
                self.mistyped(key, entry, "a list of tables");
                return Vec::new();
            }
        };
        let mut sections = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match &item.node {
                Node::Table(table) => {
                    sections.push(self.inner(format!("{key}.{index}."), table, item.span.clone()));
                }
                Node::Text(_)
                | Node::Integer(_)
                | Node::Bool(_)
                | Node::Other(_)
                | Node::Array(_) => {
                    self.mistyped(key, entry, "a list of tables");
                }
            }
        }
        sections
    }

    fn inner(&self, step: String, table: &'d Table, at: Range<usize>) -> Section<'d> {
        let path = format!("{}{step}", self.path);
        Section::of(self.reader, self.document, table, path, at)
    }

    pub fn text_of(&self, key: &str, spot: &Spot) -> Option<Text> {
        let origin = self.document.content(&format!("{}{key}", self.path), spot);
        spot.node.scalar().map(|value| Text { value, origin })
    }

    pub fn json(&self) -> serde_json::Value {
        json(self.table)
    }

    /// Marks keys as known that the typed model leaves out, and records their values for the diff.
    pub fn ignore(&self, keys: &[&str]) {
        for key in keys {
            if self.seen.borrow_mut().insert(key.to_string())
                && let Some(entry) = self.table.get(*key)
            {
                let path = format!("{}{key}", self.path);
                self.reader.record_unmodeled(self.file(), path, key, entry.spot.node.json());
            }
        }
    }

    /// Reports keys that were not read.
    pub fn finish(self) {
        let seen = self.seen.borrow();
        #[cfg(test)]
        self.reader.record_keys(self.file(), &self.path, &seen);
        for (key, entry) in self.table.iter().filter(|(key, _)| !seen.contains(*key)) {
            let message = format!("unknown key `{}{key}`: it has no effect", self.path);
            let remedy = match nearest(key, seen.iter().map(String::as_str)) {
                Some(suggestion) => format!("did you mean `{suggestion}`?"),
                None => "remove the key, or correct its spelling".to_string(),
            };
            let at = entry.key.clone();
            self.finding(Severity::Warning, "unknown_key", at, message, &remedy);
        }
    }

    /// Records an error at a key's value, or at the table if the key is absent.
    pub fn error(&self, key: &str, code: &'static str, message: String, remedy: &str) {
        self.finding(Severity::Error, code, self.at_value(key), message, remedy);
    }

    pub fn warning(&self, key: &str, code: &'static str, message: String, remedy: &str) {
        self.finding(Severity::Warning, code, self.at_value(key), message, remedy);
    }

    /// Counts a value that this release reads but does not act on; see [`super::ignored_settings`].
    pub fn ignored_setting(&self, key: &str, kind: &'static str, name: &str) {
        let place = self.document.place(self.at_value(key));
        self.reader.ignored_setting(kind, name, self.file(), place);
    }

    fn at_value(&self, key: &str) -> Range<usize> {
        self.table.get(key).map_or(self.at.clone(), |entry| self.value(entry))
    }

    /// Byte range of a value. For a list or table, the range of its key.
    fn value(&self, entry: &Entry) -> Range<usize> {
        match &entry.spot.node {
            Node::Text(_) | Node::Integer(_) | Node::Bool(_) | Node::Other(_) => {
                self.document.inner(&entry.spot)
            }
            Node::Array(_) | Node::Table(_) => entry.key.clone(),
        }
    }

    fn mistyped(&self, key: &str, entry: &Entry, expected: &str) {
        let found = entry.spot.node.kind();
        let message = format!("`{}{key}` must be {expected}, not {found}", self.path);
        let at = self.value(entry);
        self.finding(Severity::Error, "wrong_type", at, message, "change the value");
    }

    /// Origin of this table.
    pub fn place(&self) -> Origin {
        let Location { line, column, .. } = self.document.place(self.at.clone());
        let key = self.path.trim_end_matches('.').to_string();
        Origin { file: self.document.file.clone(), key, line, column, ..Origin::default() }
    }

    /// Origin of a key's value, for findings that are reported after all files have been read.
    pub fn origin(&self, key: &str) -> Origin {
        let Some(entry) = self.table.get(key) else { return self.place() };
        self.document.content(&format!("{}{key}", self.path), &entry.spot)
    }

    fn finding(
        &self,
        severity: Severity,
        code: &'static str,
        at: Range<usize>,
        message: String,
        remedy: &str,
    ) {
        let place = self.document.place(at);
        let finding = Diagnostic::new(severity, code, message, remedy);
        self.reader.report(finding.at(&self.document.file, place));
    }
}
