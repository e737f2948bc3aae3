//! A parsed TOML file with the location of every value.
use std::{collections::BTreeMap, ops::Range};

use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};

mod lines;

use self::lines::Lines;
use crate::{
    diagnostic::{Diagnostic, Location},
    text::{Escapes, Origin, Span},
};

/// Maximum size of a file, checked before parsing.
const MAX_BYTES: usize = 1 << 20;
/// Maximum nesting of values. Real configs stay below ten.
const MAX_DEPTH: usize = 64;
/// A value and its byte range.
#[derive(Debug, Clone)]
pub struct Spot {
    pub span: Range<usize>,
    pub node: Node,
}

#[derive(Debug, Clone)]
pub enum Node {
    Text(String),
    Integer(i64),
    Bool(bool),
    /// A float or a date, as written.
    Other(String),
    Array(Vec<Spot>),
    Table(Table),
}

pub type Table = BTreeMap<String, Entry>;

/// Byte range of a key, and its value.
#[derive(Debug, Clone)]
pub struct Entry {
    pub key: Range<usize>,
    pub spot: Spot,
}

#[derive(Debug, Clone)]
pub struct Document {
    pub file: String,
    pub text: String,
    pub root: Table,
    lines: Lines,
}

impl Document {
    /// Parses a file.
    ///
    /// # Errors
    /// The first syntax error, or an error about the size, the encoding or the nesting.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Document, Vec<Diagnostic>> {
        let refuse = |at: Option<Location>, message: String, remedy: &str| {
            let place = at.unwrap_or_default();
            Diagnostic::error("malformed_file", message, remedy).at(file, place)
        };
        if bytes.len() > MAX_BYTES {
            let message = format!(
                "this file is too large: it has {} bytes, but the maximum is {MAX_BYTES}",
                bytes.len()
            );
            let remedy = "move long texts into files and name them as ./file";
            return Err(vec![refuse(None, message, remedy)]);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| {
            vec![refuse(None, "this file is not UTF-8".into(), "save the file as UTF-8")]
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = Lines::of(text);
        let (root, errors) = DeTable::parse_recoverable(text);
        // Most later errors follow from the first one.
        if let Some(error) = errors.first() {
            let at = error.span().map(|span| lines.place(text, span));
            let message = format!("invalid TOML: {}", error.message().replace('\n', ", "));
            let remedy = "correct the line; a TOML checker shows it in your editor";
            return Err(vec![refuse(at, message, remedy)]);
        }
        let root = table(root.get_ref(), 0).ok_or_else(|| {
            vec![refuse(
                None,
                format!("values are nested too deeply: the maximum is {MAX_DEPTH} levels"),
                "reduce the nesting",
            )]
        })?;
        Ok(Document { file: file.to_string(), text: text.to_string(), root, lines })
    }

    /// Line and column of a byte range.
    pub fn place(&self, span: Range<usize>) -> Location {
        self.lines.place(&self.text, span)
    }

    /// Origin of a value. For a string, the origin is the location of the first character after the
    /// opening quotes. TOML drops a newline directly after an opening `"""`, so the content begins
    /// after that newline.
    pub fn content(&self, key: &str, spot: &Spot) -> Origin {
        let inner = self.inner(spot);
        let Location { line, column, .. } = self.place(inner.start..inner.start);
        let escapes = match &spot.node {
            Node::Text(value) if self.text[spot.span.clone()].starts_with('"') => {
                Escapes::of(&self.text[inner], value, line, column)
            }
            Node::Text(_)
            | Node::Integer(_)
            | Node::Bool(_)
            | Node::Other(_)
            | Node::Array(_)
            | Node::Table(_) => Escapes::default(),
        };
        Origin { file: self.file.clone(), key: key.to_string(), line, column, escapes }
    }

    /// Byte range of a value. For a string, the range excludes the quotes.
    pub fn inner(&self, spot: &Spot) -> Range<usize> {
        if !matches!(spot.node, Node::Text(_)) {
            return spot.span.clone();
        }
        let rest = &self.text[spot.span.start.min(self.text.len())..];
        let quotes = ["\"\"\"", "'''", "\"", "'"];
        let quote = quotes.into_iter().find(|quote| rest.starts_with(quote)).unwrap_or_default();
        let inner = &rest[quote.len()..];
        let newline = match quote.len() {
            3 if inner.starts_with("\r\n") => 2,
            3 if inner.starts_with('\n') => 1,
            _ => 0,
        };
        let start = spot.span.start + quote.len() + newline;
        start..spot.span.end.saturating_sub(quote.len()).max(start)
    }

    /// All values of the file with their key paths, including tables and lists.
    pub fn spans(&self) -> Vec<(String, Span)> {
        let mut found = Vec::new();
        for (key, entry) in &self.root {
            self.add_spans(key.clone(), &entry.spot, &mut found);
        }
        found
    }

    fn add_spans(&self, key: String, spot: &Spot, found: &mut Vec<(String, Span)>) {
        match &spot.node {
            Node::Text(_) | Node::Integer(_) | Node::Bool(_) | Node::Other(_) => {}
            Node::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.add_spans(format!("{key}.{index}"), item, found);
                }
            }
            Node::Table(table) => {
                for (name, entry) in table {
                    self.add_spans(format!("{key}.{name}"), &entry.spot, found);
                }
            }
        }
        found.push((key, self.span(self.inner(spot))));
    }

    fn span(&self, bytes: Range<usize>) -> Span {
        let (start, end) = (self.place(bytes.start..bytes.start), self.place(bytes.end..bytes.end));
        Span { line: start.line, column: start.column, end_line: end.line, end_column: end.column }
    }
}

fn table(from: &DeTable<'_>, depth: usize) -> Option<Table> {
    from.iter()
        .map(|(key, value)| {
            let spot = Spot { span: value.span(), node: node(value.get_ref(), depth + 1)? };
            Some((key.get_ref().to_string(), Entry { key: key.span(), spot }))
        })
        .collect()
}

fn node(from: &DeValue<'_>, depth: usize) -> Option<Node> {
    if depth > MAX_DEPTH {
        return None;
    }
    Some(match from {
        DeValue::String(text) => Node::Text(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Node::Integer(number),
            Err(_) => Node::Other(number.to_string()),
        },
        DeValue::Float(number) => Node::Other(number.to_string()),
        DeValue::Boolean(flag) => Node::Bool(*flag),
        DeValue::Datetime(time) => Node::Other(time.to_string()),
        DeValue::Array(items) => {
            let spots = items.iter().map(|item| {
                Some(Spot { span: item.span(), node: node(item.get_ref(), depth + 1)? })
            });
            Node::Array(spots.collect::<Option<_>>()?)
        }
        DeValue::Table(inner) => Node::Table(table(inner, depth + 1)?),
    })
}

impl Node {
    /// Name of the value's type, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Node::Text(_) => "a string",
            Node::Integer(_) => "an integer",
            Node::Bool(_) => "a boolean",
            Node::Other(_) => "a number or a date",
            Node::Array(_) => "a list",
            Node::Table(_) => "a table",
        }
    }

    /// Converts the value to JSON. Floats and dates stay strings, because a digest must not depend
    /// on the formatting of floats.
    pub fn json(&self) -> Value {
        match self {
            Node::Text(text) | Node::Other(text) => Value::String(text.clone()),
            Node::Integer(number) => Value::Number(Number::from(*number)),
            Node::Bool(flag) => Value::Bool(*flag),
            Node::Array(items) => items.iter().map(|item| item.node.json()).collect(),
            Node::Table(inner) => json(inner),
        }
    }

    /// Text of a scalar. The format treats `8` and `"8"`, and `true` and `"true"`, as equal.
    pub fn scalar(&self) -> Option<String> {
        match self {
            Node::Text(text) | Node::Other(text) => Some(text.clone()),
            Node::Integer(number) => Some(number.to_string()),
            Node::Bool(flag) => Some(flag.to_string()),
            Node::Array(_) | Node::Table(_) => None,
        }
    }
}

/// Converts a table to a JSON object.
pub fn json(table: &Table) -> Value {
    let entries = table.iter().map(|(key, entry)| (key.clone(), entry.spot.node.json()));
    Value::Object(entries.collect::<Map<_, _>>())
}
