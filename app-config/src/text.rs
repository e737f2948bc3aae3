//! Text with its location in the app directory, so that an error can name the location.
use std::{collections::BTreeMap, ops::Range};

use serde::{Serialize, Serializer};

use crate::diagnostic::Location;

mod escapes;

pub use self::escapes::Escapes;

/// Location in the app directory at which a text begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Origin {
    /// Path from the root of the app directory, with `/`.
    pub file: String,
    /// Key that holds the text (`vars.region`). Empty if the text is a whole file.
    pub key: String,
    /// Line of the text's first character, from 1.
    pub line: u32,
    /// Column of the text's first character, from 1, in characters.
    pub column: u32,
    /// Escapes, which make the text differ from its spelling in the file.
    #[serde(skip)]
    pub escapes: Escapes,
}

impl Origin {
    /// Creates the origin of a whole file.
    pub fn file(path: impl Into<String>) -> Self {
        Origin { file: path.into(), line: 1, column: 1, ..Origin::default() }
    }

    /// Location for a finding that covers `length` characters.
    pub fn place(&self, length: usize) -> Location {
        Location { line: self.line, column: self.column, length: length as u32 }
    }

    /// Line and column of a byte of the text.
    pub fn locate(&self, text: &str, at: usize) -> (u32, u32) {
        let at = floor(text, at);
        let first = (0, self.line.max(1), self.column.max(1));
        let (from, line, column) = self.escapes.before(at).unwrap_or(first);
        let before = &text[floor(text, from).min(at)..at];
        let lines = before.matches('\n').count() as u32;
        let within = before.rsplit('\n').next().unwrap_or_default().chars().count() as u32;
        (line + lines, if lines == 0 { column } else { 1 } + within)
    }

    /// Location of a byte range of the text, limited to the line of its first byte.
    pub fn within(&self, text: &str, bytes: Range<usize>) -> Location {
        let (line, column) = self.locate(text, bytes.start);
        let (start, end) = (floor(text, bytes.start), floor(text, bytes.end.max(bytes.start)));
        let length = match self.locate(text, end) {
            (last, behind) if last == line => behind.saturating_sub(column),
            (_, _) => text[start..end].lines().next().unwrap_or_default().chars().count() as u32,
        };
        Location { line, column, length }
    }
}

/// Returns the last character boundary at or before byte `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

/// Text of the config that may contain templates. Serialized as a plain string.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text {
    pub value: String,
    pub origin: Origin,
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.value)
    }
}

/// Range from the first character of a value to just after its last one, without the quotes of a
/// string. Lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Span {
    pub line: u32,
    pub column: u32,
    pub end_line: u32,
    pub end_column: u32,
}

/// Maximum number of stored spans. Real directories have far fewer. Later values have no span.
const MAX_SPANS: usize = 100_000;

/// Locations of values, by file and key path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spans {
    files: BTreeMap<String, BTreeMap<String, Span>>,
    count: usize,
}

impl Spans {
    /// Adds the values of one file, up to the maximum.
    pub(crate) fn extend(&mut self, file: &str, found: impl Iterator<Item = (String, Span)>) {
        let remaining = MAX_SPANS.saturating_sub(self.count);
        let spans = self.files.entry(file.to_string()).or_default();
        spans.extend(found.take(remaining));
        self.count += spans.len();
    }

    pub(crate) fn of(&self, at: &Origin, key: &str) -> Option<Span> {
        let path = match (at.key.is_empty(), key.is_empty()) {
            (true, _) => key.to_string(),
            (false, true) => at.key.clone(),
            (false, false) => format!("{}.{key}", at.key),
        };
        self.files.get(&at.file)?.get(&path).copied()
    }

    /// All values with file, key path and location.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, Span)> {
        self.files.iter().flat_map(|(file, spans)| {
            spans.iter().map(|(key, span)| (file.as_str(), key.as_str(), *span))
        })
    }
}
