//! Templates with the meaning of Go's `text/template`, over an install's state.
//!
//! A text is rendered only when it holds `.nuon` (or `.stead`, the same data under our own name);
//! any other text is left as it is, so that files of tools with braces of their own pass through.
//! Rendering is strict: a key that is not in the state is an error with its place, never an empty
//! text. Functions are those that real configs use; an unknown one is an error before anything is
//! rendered. Nothing a template says can make rendering run forever or fill the memory.
use serde_json::Value as Json;

use crate::text::{Origin, Text};

mod ast;
mod budget;
mod builtin;
mod call;
mod compare;
mod escape;
mod eval;
mod explain;
mod format;
mod functions;
mod json;
mod lex;
mod literal;
mod operand;
mod parse;
mod pipeline;
mod printf;
mod quote;
pub mod reads;
mod real;
mod sprig;
mod token;
mod value;
mod verbs;

use self::ast::Parsed;
pub use self::explain::Variable;

/// Whether the template itself is wrong, or the state it met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    Parse,
    Exec,
}

/// Why a text could not be rendered, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", place(.origin, *.line, *.column))]
pub struct TemplateError {
    pub class: ErrorClass,
    pub message: String,
    /// Where the whole text is.
    pub origin: Box<Origin>,
    /// Line in the file, from 1.
    pub line: u32,
    /// Column in that line, from 1, in characters.
    pub column: u32,
    /// The expression at fault, as it is written (`.nuon.inputs.inputs.size`).
    pub variable: Option<String>,
}

impl TemplateError {
    /// The path of the file.
    pub fn file(&self) -> &str {
        &self.origin.file
    }
}

fn place(origin: &Origin, line: u32, column: u32) -> String {
    if origin.file.is_empty() {
        String::new()
    } else {
        format!("{}:{line}:{column}: ", origin.file)
    }
}

/// A fault inside one text, by byte offset.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fault {
    pub class: ErrorClass,
    pub at: usize,
    pub message: String,
    pub variable: Option<String>,
    /// Where what has no end was opened.
    pub opened: Option<usize>,
}

impl Fault {
    pub fn parse(at: usize, message: impl Into<String>) -> Self {
        Fault::new(ErrorClass::Parse, at, message)
    }

    pub fn exec(at: usize, message: impl Into<String>) -> Self {
        Fault::new(ErrorClass::Exec, at, message)
    }

    fn new(class: ErrorClass, at: usize, message: impl Into<String>) -> Self {
        Fault { class, at, message: message.into(), variable: None, opened: None }
    }
}

/// What one rendering may cost. What is more is an error, whatever the machine is.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Nodes, calls, and copied or compared bytes by the dozen.
    pub steps: u64,
    /// The largest text that is made, in bytes.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { steps: 1_000_000, bytes: 8 << 20 }
    }
}

/// Whether a text is a template at all.
pub fn is_template(text: &str) -> bool {
    text.contains("{{") && (text.contains(".nuon") || text.contains(".stead"))
}

/// A state, prepared once for many templates. None of them changes it for the next.
pub struct State<'j> {
    json: &'j Json,
    data: value::Value,
    named_twice: value::Value,
}

impl<'j> State<'j> {
    /// Of an object with the key `nuon` or `stead`; what one holds is also found under the other.
    pub fn new(json: &'j Json) -> Self {
        let data = value::from_json(json);
        State { json, named_twice: value::named_twice(&data), data }
    }

    /// A template that prints everything prints it once, so that only one that knows the other name
    /// is given it.
    fn data(&self, template: &Template) -> value::Value {
        let twice = template.source.contains(".stead") || self.json.get("nuon").is_none();
        if template.parsed.changes {
            let fresh = value::from_json(self.json);
            return if twice { value::named_twice(&fresh) } else { fresh };
        }
        if twice { &self.named_twice } else { &self.data }.clone()
    }
}

/// A parsed template.
#[derive(Debug, Clone)]
pub struct Template {
    source: String,
    parsed: Parsed,
    origin: Origin,
}

impl Template {
    /// Parses a text, whether or not it reads the state.
    ///
    /// # Errors
    /// When the syntax is wrong, or a function or variable is not known.
    pub fn parse(text: &str, origin: &Origin) -> Result<Template, TemplateError> {
        match parse::parse(text) {
            Ok(parsed) => Ok(Template { source: text.into(), parsed, origin: origin.clone() }),
            Err(fault) => Err(located(text, origin, fault)),
        }
    }

    /// Renders it over a state whose top key is `nuon`.
    ///
    /// # Errors
    /// When a key is missing, a value has another type than is needed, or a limit is met.
    pub fn render(&self, state: &Json) -> Result<String, TemplateError> {
        self.render_within(&State::new(state), Limits::default()).0
    }

    /// Renders it over a prepared state; with the text come the steps it took.
    ///
    /// # Errors
    /// As [`Template::render`].
    pub fn render_within(
        &self,
        state: &State<'_>,
        limits: Limits,
    ) -> (Result<String, TemplateError>, u64) {
        let (result, steps) = eval::run(&self.parsed, &self.source, state.data(self), limits);
        (result.map_err(|fault| located(&self.source, &self.origin, fault)), steps)
    }

    pub(crate) fn parsed(&self) -> &Parsed {
        &self.parsed
    }
}

/// Renders a text if it is a template; else gives it back.
///
/// `state` is an object with the key `nuon`; what it holds is also found under `stead`.
///
/// # Errors
/// As [`Template::parse`] and [`Template::render`].
pub fn render(text: &str, state: &Json, origin: &Origin) -> Result<String, TemplateError> {
    if !is_template(text) {
        return Ok(text.to_string());
    }
    Template::parse(text, origin)?.render(state)
}

/// Renders one text of the config.
///
/// # Errors
/// As [`render`].
pub fn render_text(text: &Text, state: &Json) -> Result<String, TemplateError> {
    render(&text.value, state, &text.origin)
}

/// Renders every string inside a JSON value; keys stay as they are.
///
/// # Errors
/// As [`render`], for the first string that fails; the origin's key says which.
pub fn render_tree(tree: &Json, state: &Json, origin: &Origin) -> Result<Json, TemplateError> {
    let below = |step: &str| {
        let dot = if origin.key.is_empty() { "" } else { "." };
        Origin { key: format!("{}{dot}{step}", origin.key), ..origin.clone() }
    };
    Ok(match tree {
        Json::String(text) => Json::String(render(text, state, origin)?),
        Json::Array(items) => {
            let items = items.iter().enumerate();
            let rendered =
                items.map(|(at, item)| render_tree(item, state, &below(&at.to_string())));
            Json::Array(rendered.collect::<Result<_, _>>()?)
        }
        Json::Object(entries) => {
            let rendered = entries
                .iter()
                .map(|(key, item)| Ok((key.clone(), render_tree(item, state, &below(key))?)));
            Json::Object(rendered.collect::<Result<_, TemplateError>>()?)
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => tree.clone(),
    })
}

fn located(text: &str, origin: &Origin, fault: Fault) -> TemplateError {
    let (line, column) = origin.locate(text, fault.at);
    let mut message = fault.message;
    if let Some(opened) = fault.opened {
        let (line, column) = origin.locate(text, opened);
        message.push_str(&format!("; it begins at {line}:{column}"));
    }
    let origin = Box::new(origin.clone());
    TemplateError { class: fault.class, message, origin, line, column, variable: fault.variable }
}

#[cfg(test)]
mod tests;
