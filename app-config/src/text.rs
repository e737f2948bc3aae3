//! A piece of text and where it was written, so that an error in it can name the place.
use std::{collections::BTreeMap, ops::Range};

use serde::{Serialize, Serializer};

use crate::diagnostic::Place;

mod escapes;

pub use self::escapes::Escapes;

/// The place in the app directory where a text begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Origin {
    /// Path from the top of the app directory, with `/`.
    pub file: String,
    /// The key that holds the text (`vars.region`); empty when the text is a whole file.
    pub key: String,
    /// Line of the text's first character, from 1.
    pub line: u32,
    /// Column of the text's first character, from 1, in characters.
    pub column: u32,
    /// What of the text is written otherwise than it reads.
    #[serde(skip)]
    pub escapes: Escapes,
}

impl Origin {
    /// The beginning of a whole file.
    pub fn file(path: impl Into<String>) -> Self {
        Origin { file: path.into(), line: 1, column: 1, ..Origin::default() }
    }

    /// The same for a finding, over so many characters.
    pub fn place(&self, length: usize) -> Place {
        Place { line: self.line, column: self.column, length: length as u32 }
    }

    /// Line and column at which a byte of the text is written.
    pub fn locate(&self, text: &str, at: usize) -> (u32, u32) {
        let at = floor(text, at);
        let first = (0, self.line.max(1), self.column.max(1));
        let (from, line, column) = self.escapes.before(at).unwrap_or(first);
        let before = &text[floor(text, from).min(at)..at];
        let lines = before.matches('\n').count() as u32;
        let within = before.rsplit('\n').next().unwrap_or_default().chars().count() as u32;
        (line + lines, if lines == 0 { column } else { 1 } + within)
    }

    /// The place of some bytes of the text, as far as they are on the line of the first of them.
    pub fn within(&self, text: &str, bytes: Range<usize>) -> Place {
        let (line, column) = self.locate(text, bytes.start);
        let (start, end) = (floor(text, bytes.start), floor(text, bytes.end.max(bytes.start)));
        let length = match self.locate(text, end) {
            (last, behind) if last == line => behind.saturating_sub(column),
            (_, _) => text[start..end].lines().next().unwrap_or_default().chars().count() as u32,
        };
        Place { line, column, length }
    }
}

/// The nearest byte before, at which a character begins.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

/// A text of the config that may hold templates. In JSON it is just its text.
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

/// From the first character of a value to behind its last; of a text without its quotes. Lines and
/// columns are from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Span {
    pub line: u32,
    pub column: u32,
    pub end_line: u32,
    pub end_column: u32,
}

/// More values than these are read without a span: real directories have a tenth of them.
const MOST_SPANS: usize = 100_000;

/// Where values are written, by file and key path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spans {
    files: BTreeMap<String, BTreeMap<String, Span>>,
    count: usize,
}

impl Spans {
    /// Takes in the values of one file, as far as there is room.
    pub(crate) fn extend(&mut self, file: &str, found: impl Iterator<Item = (String, Span)>) {
        let room = MOST_SPANS.saturating_sub(self.count);
        let spans = self.files.entry(file.to_string()).or_default();
        spans.extend(found.take(room));
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

    /// Every value: its file, its key path, where it is.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, Span)> {
        self.files.iter().flat_map(|(file, spans)| {
            spans.iter().map(|(key, span)| (file.as_str(), key.as_str(), *span))
        })
    }
}
