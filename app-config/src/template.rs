//! Templates with the semantics of Go's `text/template`, rendered over an install's state.
//!
//! Only text that contains `{{` and `.nuon` (or `.stead`, Stead's name for the same data) is
//! rendered. Any other text stays unchanged, because files of other tools have their own braces.
//! Rendering is strict: a missing field is an error with a location. `index` and `dig` tolerate a
//! missing key. Only Go's own functions and the sprig functions that real configs use exist; an
//! unknown function is a parse error. Limits bound the time and memory of every template.
use std::sync::Arc;

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
pub mod reads;
mod real;
pub mod secret;
mod sprig;
mod token;
mod value;
mod verbs;

use self::ast::Parsed;
pub use self::explain::Variable;

/// Phase in which an error occurs: parsing or rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    Parse,
    Exec,
}

/// Reason and location of a failed render.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", place(.origin, *.line, *.column))]
pub struct TemplateError {
    pub class: ErrorClass,
    pub message: String,
    /// Location of the whole text.
    pub origin: Box<Origin>,
    /// Line in the file, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Failed expression, as written (`.nuon.inputs.inputs.size`).
    pub variable: Option<String>,
}

impl TemplateError {
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

/// An error inside one text, by byte offset.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fault {
    pub class: ErrorClass,
    pub at: usize,
    pub message: String,
    pub variable: Option<String>,
    /// Offset of the opening delimiter of an unclosed block or literal.
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

/// Limits of one render. They count work instead of time, so that every machine gives the same
/// result.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of steps. An operand, a call, an iteration of `range`, and 32 copied or
    /// compared bytes cost one step each.
    pub steps: u64,
    /// Maximum size of a rendered text, in bytes.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { steps: 1_000_000, bytes: 8 << 20 }
    }
}

/// True if the text is a template: it contains `{{`, and `.nuon` or `.stead`.
pub fn is_template(text: &str) -> bool {
    text.contains("{{") && (text.contains(".nuon") || text.contains(".stead"))
}

/// Prepared state for many templates. A template that may change the state gets a copy.
pub struct State<'j> {
    json: &'j Json,
    prefix: Option<Arc<str>>,
    data: value::Value,
    named_twice: value::Value,
}

impl<'j> State<'j> {
    /// Prepares an object with the key `nuon` or `stead`. Data under one key is available under the
    /// other, too.
    /// Strings that are marks with the prefix under [`secret::PREFIX_KEY`] are sensitive values.
    pub fn new(json: &'j Json) -> Self {
        let prefix = json.get(secret::PREFIX_KEY).and_then(Json::as_str).map(Arc::from);
        let data = data(json, prefix.as_ref());
        State { json, prefix, named_twice: value::named_twice(&data), data }
    }

    /// Data for a template. Adds the second name only if the template uses it, so that a template
    /// that prints everything prints the data once.
    fn data(&self, template: &Template) -> value::Value {
        let needs_both_names =
            template.source.contains(".stead") || self.json.get("nuon").is_none();
        if template.parsed.changes {
            let fresh = data(self.json, self.prefix.as_ref());
            return if needs_both_names { value::named_twice(&fresh) } else { fresh };
        }
        if needs_both_names { &self.named_twice } else { &self.data }.clone()
    }
}

fn data(json: &Json, prefix: Option<&Arc<str>>) -> value::Value {
    let data = value::with_secrets(json, prefix);
    if let (Some(_), value::Value::Map(entries)) = (prefix, &data) {
        entries.borrow_mut().remove(secret::PREFIX_KEY);
    }
    data
}

#[derive(Debug, Clone)]
pub struct Template {
    source: String,
    parsed: Parsed,
    origin: Origin,
}

impl Template {
    /// Parses text, whether or not it reads the state.
    ///
    /// # Errors
    /// If the syntax is invalid, a function or variable is unknown, or the text exceeds a limit.
    pub fn parse(text: &str, origin: &Origin) -> Result<Template, TemplateError> {
        match parse::parse(text) {
            Ok(parsed) => Ok(Template { source: text.into(), parsed, origin: origin.clone() }),
            Err(fault) => Err(located(text, origin, fault)),
        }
    }

    /// Renders the template over a state with the key `nuon` or `stead`.
    ///
    /// # Errors
    /// If a field is missing, a function fails, or a limit is exceeded.
    pub fn render(&self, state: &Json) -> Result<String, TemplateError> {
        self.render_within(&State::new(state), Limits::default()).0
    }

    /// Renders the template over a prepared state. Returns the text and the number of steps.
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

/// Renders text if it is a template. Otherwise returns it unchanged.
///
/// `state` is an object with the key `nuon`. Its data is also available under `stead`.
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

/// Renders every string inside a JSON value. Keys stay unchanged.
///
/// # Errors
/// As [`render`], for the first string that fails. The key of the origin identifies it.
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
        message.push_str(&format!("; opened at {line}:{column}"));
    }
    let origin = Box::new(origin.clone());
    TemplateError { class: fault.class, message, origin, line, column, variable: fault.variable }
}

#[cfg(test)]
mod tests;
