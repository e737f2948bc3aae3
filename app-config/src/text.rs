//! A piece of text and where it was written, so that an error in it can name the place.
use std::{collections::BTreeMap, sync::Arc};

use serde::{Serialize, Serializer};

use crate::diagnostic::Place;

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
    /// Where its other characters are, when it was written with escapes.
    #[serde(skip)]
    pub jumps: Jumps,
}

/// The places behind the escapes of a text, in their order; between them a text stands in its file
/// as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Jumps(Option<Arc<Vec<Jump>>>);

/// From this byte of the text on, its characters are there in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Jump {
    pub at: usize,
    pub line: u32,
    pub column: u32,
}

impl Jumps {
    pub(crate) fn of(jumps: Vec<Jump>) -> Self {
        Jumps(Some(Arc::new(jumps)))
    }

    /// The last one at or before a byte.
    fn before(&self, at: usize) -> Option<Jump> {
        let jumps = self.0.as_deref().map(Vec::as_slice).unwrap_or_default();
        let behind = jumps.partition_point(|jump| jump.at <= at);
        jumps[..behind].last().copied()
    }
}

impl Origin {
    /// The beginning of a whole file.
    pub fn file(path: impl Into<String>) -> Self {
        Origin { file: path.into(), line: 1, column: 1, ..Origin::default() }
    }

    /// Line and column in the file of a byte of the text that begins here.
    pub fn of(&self, text: &str, at: usize) -> (u32, u32) {
        let mut at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let first = Jump { at: 0, line: self.line.max(1), column: self.column.max(1) };
        let from = self.jumps.before(at).unwrap_or(first);
        let between = text.get(from.at..at).unwrap_or_default();
        let lines = between.matches('\n').count() as u32;
        let column = between.rsplit('\n').next().unwrap_or_default().chars().count() as u32;
        let first = if lines == 0 { from.column } else { 1 };
        (from.line + lines, first + column)
    }

    /// The same for a finding, over so many characters.
    pub fn place(&self, length: usize) -> Place {
        Place { line: self.line, column: self.column, length: length as u32 }
    }
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
