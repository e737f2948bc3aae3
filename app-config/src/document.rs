//! One TOML file, with the place of everything in it.
use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};

use crate::{diagnostic::Diagnostic, diagnostic::Severity, text::Origin};

/// Larger files are refused before they are parsed.
const LARGEST_BYTES: usize = 1 << 20;
/// Deeper values are refused; real configs stay below ten.
const DEEPEST: usize = 64;

/// A value and where it begins, as a byte offset.
#[derive(Debug, Clone)]
pub struct Spot {
    pub at: usize,
    pub node: Node,
}

#[derive(Debug, Clone)]
pub enum Node {
    Text(String),
    Integer(i64),
    Bool(bool),
    /// A float or a date, as it is written.
    Other(String),
    Array(Vec<Spot>),
    Table(Table),
}

pub type Table = BTreeMap<String, Entry>;

/// A key's place and its value.
#[derive(Debug, Clone)]
pub struct Entry {
    pub key_at: usize,
    pub spot: Spot,
}

/// A parsed file.
#[derive(Debug, Clone)]
pub struct Document {
    pub file: String,
    pub text: String,
    pub root: Table,
}

impl Document {
    /// Parses one file.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Document, Diagnostic> {
        let refuse = |at: Option<(u32, u32)>, message: String, remedy: &str| Diagnostic {
            severity: Severity::Error,
            code: "malformed_file",
            file: file.to_string(),
            line: at.unwrap_or_default().0,
            column: at.unwrap_or_default().1,
            message,
            remedy: remedy.to_string(),
        };
        if bytes.len() > LARGEST_BYTES {
            let message = format!("this file is larger than {LARGEST_BYTES} bytes");
            return Err(refuse(
                None,
                message,
                "move long texts into files and name them as ./file",
            ));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|_| refuse(None, "this file is not UTF-8".into(), "save it as UTF-8"))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root = DeTable::parse(text).map_err(|error| {
            let at = error.span().map(|span| place(text, span.start));
            let message = format!("this is not TOML: {}", error.message().replace('\n', ", "));
            refuse(at, message, "correct the line; a TOML checker shows it in your editor")
        })?;
        let root = table(root.get_ref(), 0).ok_or_else(|| {
            refuse(None, format!("values nest deeper than {DEEPEST}"), "flatten them")
        })?;
        Ok(Document { file: file.to_string(), text: text.to_string(), root })
    }

    /// Line and column of a byte offset, both from 1.
    pub fn place(&self, at: usize) -> (u32, u32) {
        place(&self.text, at)
    }

    /// Where the characters of a string value begin: behind its quotes, and behind the newline
    /// that TOML drops after an opening `"""`.
    pub fn content(&self, key: &str, spot: &Spot) -> Origin {
        let rest = &self.text[spot.at.min(self.text.len())..];
        let quotes = ["\"\"\"", "'''", "\"", "'"];
        let quote = quotes.into_iter().find(|quote| rest.starts_with(quote)).unwrap_or_default();
        let inner = &rest[quote.len()..];
        let newline = match quote.len() {
            3 if inner.starts_with("\r\n") => 2,
            3 if inner.starts_with('\n') => 1,
            _ => 0,
        };
        let (line, column) = self.place(spot.at + quote.len() + newline);
        Origin { file: self.file.clone(), key: key.to_string(), line, column }
    }
}

fn place(text: &str, at: usize) -> (u32, u32) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line as u32, column as u32)
}

fn table(from: &DeTable<'_>, depth: usize) -> Option<Table> {
    from.iter()
        .map(|(key, value)| {
            let spot = Spot { at: value.span().start, node: node(value.get_ref(), depth + 1)? };
            Some((key.get_ref().to_string(), Entry { key_at: key.span().start, spot }))
        })
        .collect()
}

fn node(from: &DeValue<'_>, depth: usize) -> Option<Node> {
    if depth > DEEPEST {
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
                Some(Spot { at: item.span().start, node: node(item.get_ref(), depth + 1)? })
            });
            Node::Array(spots.collect::<Option<_>>()?)
        }
        DeValue::Table(inner) => Node::Table(table(inner, depth + 1)?),
    })
}

impl Node {
    /// What kind of value it is, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Node::Text(_) => "a string",
            Node::Integer(_) => "an integer",
            Node::Bool(_) => "a bool",
            Node::Other(_) => "a number or a date",
            Node::Array(_) => "a list",
            Node::Table(_) => "a table",
        }
    }

    /// The value as JSON. Floats and dates stay texts: digests must not hang on how a float prints.
    pub fn json(&self) -> Value {
        match self {
            Node::Text(text) | Node::Other(text) => Value::String(text.clone()),
            Node::Integer(number) => Value::Number(Number::from(*number)),
            Node::Bool(flag) => Value::Bool(*flag),
            Node::Array(items) => items.iter().map(|item| item.node.json()).collect(),
            Node::Table(inner) => json(inner),
        }
    }

    /// A scalar as the text that the format means: `8`, `true` and `"8"`, `"true"` are the same.
    pub fn scalar(&self) -> Option<String> {
        match self {
            Node::Text(text) | Node::Other(text) => Some(text.clone()),
            Node::Integer(number) => Some(number.to_string()),
            Node::Bool(flag) => Some(flag.to_string()),
            Node::Array(_) | Node::Table(_) => None,
        }
    }
}

/// A table as a JSON object.
pub fn json(table: &Table) -> Value {
    let entries = table.iter().map(|(key, entry)| (key.clone(), entry.spot.node.json()));
    Value::Object(entries.collect::<Map<_, _>>())
}
