//! Sensitive values in templates. A template can insert one, also through a pure function of that
//! one value, but never inspect it: the server does not know it.
//!
//! The state contains each sensitive value as a mark: the state's secret prefix, and what the value
//! is. A rendered text contains such marks, too. [`take_marks`] replaces them with references.
//! Nobody else knows the prefix, so no other text can contain a mark.
use std::{rc::Rc, sync::Arc};

use domain::{
    ids::ValueId,
    secret::{Through, apply, placeholder},
};
use serde::{Deserialize, Serialize};

use super::{
    builtin, format,
    functions::Answer,
    printf::formatted_with_plain,
    value::{Shared, Value},
};

/// Key of the state, next to `nuon`, that holds the prefix of its marks.
pub const PREFIX_KEY: &str = "sensitive_prefix";
const END: char = ';';
/// Text that a function prints instead of a sensitive value.
const STAND_IN: &str = "\u{f0000}";

/// Sensitive value, and the functions that a template applied to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    prefix: Arc<str>,
    content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    source: Source,
    /// True for a list or a map. Only `toJson` inserts it.
    #[serde(default)]
    is_json: bool,
    #[serde(default)]
    through: Vec<Through>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    /// Value that only the runner knows.
    Id(ValueId),
    /// Default of a sensitive input, which the config contains in clear text.
    Default(String),
}

/// Sensitive value in a rendered text, as a range of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub start: usize,
    pub end: usize,
    pub id: ValueId,
    pub through: Vec<Through>,
}

/// Returns the mark of a sensitive value for the state.
pub fn mark(prefix: &str, id: ValueId, is_json: bool) -> String {
    written(prefix, &Content { source: Source::Id(id), is_json, through: vec![] })
}

/// Returns the mark of the default of a sensitive input. The rendered text contains the default, but
/// templates cannot inspect it, as they cannot inspect other values of this input.
pub fn mark_default(prefix: &str, value: &str) -> String {
    let source = Source::Default(value.to_owned());
    written(prefix, &Content { source, is_json: false, through: vec![] })
}

fn written(prefix: &str, content: &Content) -> String {
    // A value of this type always has a JSON form.
    let json = serde_json::to_vec(content).unwrap_or_default();
    format!("{prefix}{}{END}", hex::encode(json))
}

fn content(hexadecimal: &str) -> Option<Content> {
    serde_json::from_slice(&hex::decode(hexadecimal).ok()?).ok()
}

/// Replaces each mark in a text with `encrypted:` and the id, and returns the references in order.
///
/// # Errors
/// If a mark is cut, or is that of a list or map.
pub fn take_marks(prefix: &str, text: &str) -> Result<(String, Vec<Reference>), String> {
    let (mut out, mut references, mut rest) = (String::new(), vec![], text);
    while let Some((before, after)) = rest.split_once(prefix) {
        out.push_str(before);
        let marked = after.split_once(END).and_then(|(mark, rest)| Some((content(mark)?, rest)));
        let Some((Content { source, is_json, through }, after)) = marked else {
            return Err("a template changed a sensitive value in a way that is not possible".into());
        };
        if is_json {
            return Err(NOT_TEXT.into());
        }
        match source {
            Source::Default(value) => out.push_str(&apply(&through, &value)),
            Source::Id(id) => {
                let start = out.len();
                out.push_str(&placeholder(id));
                references.push(Reference { start, end: out.len(), id, through });
            }
        }
        rest = after;
    }
    out.push_str(rest);
    Ok((out, references))
}

const NOT_TEXT: &str = "a sensitive list or map can only be inserted with `toJson`";
pub const INSIDE: &str = "the argument contains a sensitive value, which cannot be printed together with \
     others; insert the sensitive value on its own";

/// Error of a template that would have to know a sensitive value.
pub fn inspected(what: &str) -> String {
    format!(
        "{what} would have to inspect a sensitive value, which only the customer's runner knows; a \
         template can insert the value, directly or with b64enc, quote, toJson, indent, nindent, \
         trim, urlquery, printf or default"
    )
}

impl Secret {
    /// Reads the mark of a sensitive value in the state.
    pub fn read(prefix: &Arc<str>, text: &str) -> Option<Secret> {
        let marked = text.strip_prefix(&**prefix)?.strip_suffix(END)?;
        Some(Secret { prefix: Arc::clone(prefix), content: content(marked)? })
    }

    /// Text of the value in a rendered text: a mark, or the default of the input.
    pub fn shown(&self) -> Result<String, String> {
        match &self.content {
            Content { is_json: true, .. } => Err(NOT_TEXT.into()),
            Content { source: Source::Default(value), through, .. } => Ok(apply(through, value)),
            content @ Content { source: Source::Id(_), .. } => Ok(written(&self.prefix, content)),
        }
    }

    fn with(&self, functions: impl IntoIterator<Item = Through>) -> Answer {
        if self.content.is_json {
            return Err(NOT_TEXT.into());
        }
        let mut secret = self.clone();
        secret.content.through.extend(functions);
        Ok(Value::Secret(Rc::new(secret)))
    }

    fn to_json(&self) -> Answer {
        if !self.content.is_json {
            return self.with([Through::ToJson]);
        }
        // Such a value is stored as JSON.
        let mut secret = self.clone();
        secret.content.is_json = false;
        Ok(Value::Secret(Rc::new(secret)))
    }
}

/// True if a value is sensitive or contains a sensitive value.
pub fn is_in(value: &Value) -> bool {
    match value {
        Value::Secret(_) => true,
        Value::List(items) => items.iter().any(is_in),
        Value::Map(entries) => Shared::borrow(entries).values().any(is_in),
        Value::Nil | Value::Null | Value::Bool(_) | Value::Int(_) | Value::Int64(_) => false,
        Value::Byte(_) | Value::Float(_) | Value::Text(_) => false,
    }
}

/// Applies a function to arguments with sensitive values. Returns `None` if the function does not
/// look at them, so that it can be applied as usual.
pub fn call(name: &str, arguments: &[Value], most: usize) -> Option<Answer> {
    if !arguments.iter().any(is_in) {
        return None;
    }
    let is_direct = |value: &Value| matches!(value, Value::Secret(_));
    match (name, arguments) {
        ("list" | "ternary", _) => None,
        ("dict", pairs) if !pairs.iter().step_by(2).any(is_in) => None,
        // These functions look at lists and maps, but not into their elements.
        ("index" | "dig" | "len" | "slice" | "values" | "kindIs" | "append" | "set", _)
            if !looked_at(name, arguments).iter().any(is_direct) =>
        {
            None
        }
        ("default", [_, given]) if !is_direct(given) => None,
        ("default", [Value::Text(fallback), Value::Secret(secret)]) => {
            Some(secret.with([Through::Default(fallback.to_string())]))
        }
        ("coalesce", values) => {
            let first = values.iter().find(|value| is_direct(value) || value.is_true());
            match first {
                Some(value) if !is_direct(value) => Some(Ok(value.clone())),
                Some(_) | None => Some(Err(inspected("`coalesce`"))),
            }
        }
        ("b64enc", [Value::Secret(secret)]) => Some(secret.with([Through::Base64])),
        ("quote", [Value::Secret(secret)]) => Some(secret.with([Through::Quote])),
        ("trim", [Value::Secret(secret)]) => Some(secret.with([Through::Trim])),
        ("urlquery", [Value::Secret(secret)]) => Some(secret.with([Through::UrlQuery])),
        ("toJson", [Value::Secret(secret)]) => Some(secret.to_json()),
        ("indent", [Value::Int(spaces), Value::Secret(secret)]) => {
            Some(builtin::spaces(*spaces).and_then(|n| secret.with([Through::Indent(n)])))
        }
        ("nindent", [Value::Int(spaces), Value::Secret(secret)]) => {
            let line = Through::Surround { before: "\n".into(), after: String::new() };
            Some(builtin::spaces(*spaces).and_then(|n| secret.with([Through::Indent(n), line])))
        }
        ("print", values) => {
            Some(surrounded(values, |values, _| Some(format::sprint(values, most))))
        }
        ("printf", [Value::Text(form), values @ ..]) => {
            let print = |values: &[Value], at| formatted_with_plain(form, values, at, most);
            Some(surrounded(values, print))
        }
        (_, values) if values.iter().any(is_direct) => Some(Err(inspected(&format!("`{name}`")))),
        (_, _) => Some(Err(INSIDE.into())),
    }
}

/// Arguments that a function looks at.
fn looked_at<'a>(name: &str, arguments: &'a [Value]) -> &'a [Value] {
    let only_first = matches!(name, "append" | "set" | "slice");
    match (name, arguments) {
        (_, [first, ..]) if only_first => std::slice::from_ref(first),
        // The last but one argument of `dig` is its default.
        ("dig", [.., map]) => std::slice::from_ref(map),
        (_, all) => all,
    }
}

/// Result of a function that prints its arguments: the texts before and after the sensitive one.
/// `print` gets the arguments with a stand-in for the sensitive one, and its place. It returns
/// `None` if it does not print this argument once and unchanged, whatever its text is.
fn surrounded(values: &[Value], print: impl FnOnce(&[Value], usize) -> Option<String>) -> Answer {
    let mut secrets = values.iter().enumerate().filter_map(|(at, value)| match value {
        Value::Secret(secret) => Some((at, Rc::clone(secret))),
        Value::Nil | Value::Null | Value::Bool(_) | Value::Int(_) | Value::Int64(_) => None,
        Value::Byte(_) | Value::Float(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => None,
    });
    let only_one = || {
        "it can contain one sensitive value, and none inside a list or map; insert each sensitive \
         value on its own"
            .to_owned()
    };
    let (Some((at, secret)), None) = (secrets.next(), secrets.next()) else {
        return Err(only_one());
    };
    let mut values = values.to_vec();
    values[at] = Value::text(STAND_IN);
    if values.iter().any(is_in) {
        return Err(only_one());
    }
    let printed = print(&values, at);
    let around = printed.as_deref().and_then(|printed| printed.split_once(STAND_IN));
    match around.filter(|(_, after)| !after.contains(STAND_IN)) {
        Some((before, after)) => {
            let (before, after) = (before.to_owned(), after.to_owned());
            secret.with([Through::Surround { before, after }])
        }
        None => Err(inspected("this format")),
    }
}

#[cfg(test)]
mod tests;
