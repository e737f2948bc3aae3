//! Checks the inputs of an install against the inputs that the app declares.
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    diagnostic::nearest,
    model::{AppConfig, Input, InputKind},
    template::{is_template, render},
    text::Origin,
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum InputProblem {
    #[error("unknown input `{name}`{}", suggestion(.nearest))]
    Unknown {
        name: String,
        /// Declared input with the most similar name.
        #[serde(skip_serializing_if = "Option::is_none")]
        nearest: Option<String>,
    },
    #[error("the input `{name}` is required but was not given")]
    Missing { name: String },
    #[error("invalid value of the input `{name}`: must be {expected}, not {found}")]
    IllTyped { name: String, expected: &'static str, found: String },
    #[error("the input `{name}` is sensitive: this release does not support sensitive inputs")]
    Sensitive { name: String },
    #[error("cannot render the default of the input `{name}`: {why}")]
    DefaultFailed { name: String, why: String },
}

impl InputProblem {
    pub fn name(&self) -> &str {
        match self {
            InputProblem::Unknown { name, .. }
            | InputProblem::Missing { name }
            | InputProblem::IllTyped { name, .. }
            | InputProblem::Sensitive { name }
            | InputProblem::DefaultFailed { name, .. } => name,
        }
    }

    pub fn remedy(&self) -> String {
        match self {
            InputProblem::Unknown { nearest: Some(nearest), .. } => {
                format!("did you mean `{nearest}`?")
            }
            InputProblem::Unknown { nearest: None, .. } => "omit the input".to_string(),
            InputProblem::Missing { name } | InputProblem::DefaultFailed { name, .. } => {
                format!("add --input {name}=…")
            }
            InputProblem::IllTyped { name, expected, .. } => {
                format!("set {expected}: --input {name}=…")
            }
            InputProblem::Sensitive { .. } => {
                "read the value inside the customer's account, in the module".to_string()
            }
        }
    }
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// Resolves every declared input to a string: the given value, else the default, else an empty
/// string. Templates see all declared inputs, always as strings (`"8"`, `"true"`, `["a"]`). A
/// default that is a template may read only inputs whose values are not templates.
///
/// # Errors
/// All problems with given values and with defaults.
pub fn resolve_inputs(
    config: &AppConfig,
    given: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, String>, Vec<InputProblem>> {
    let mut problems: Vec<InputProblem> = given
        .keys()
        .filter(|name| config.input(name).is_none())
        .map(|name| InputProblem::Unknown {
            name: name.clone(),
            nearest: nearest_input(config, name),
        })
        .collect();
    let (mut resolved, mut derived) = (BTreeMap::new(), Vec::new());
    for input in &config.inputs {
        match resolve_input(input, given.get(&input.name)) {
            Ok(Resolved::Text(text)) => {
                resolved.insert(input.name.clone(), text);
            }
            Ok(Resolved::Template(template)) => derived.push((input, template)),
            Err(problem) => problems.push(problem),
        }
    }
    let state = json!({"nuon": {"inputs": {"inputs": resolved}, "install": {"inputs": resolved}}});
    for (input, template) in derived {
        let name = input.name.clone();
        match render(&template, &state, &Origin::default()) {
            Ok(text) if accepts(input.kind, &text) => {
                resolved.insert(name, text);
            }
            Ok(text) => problems.push(type_error(input, &text)),
            Err(_) if input.sensitive => {
                let why = "its template failed".to_string();
                problems.push(InputProblem::DefaultFailed { name, why });
            }
            Err(error) => problems.push(InputProblem::DefaultFailed { name, why: error.message }),
        }
    }
    if problems.is_empty() { Ok(resolved) } else { Err(problems) }
}

/// Resolves inputs when a user chooses a version or its inputs. Rejects every value of a sensitive
/// input, including a default: templates would render it in clear text. A required sensitive input
/// is rejected, too, because no value can be given. [`resolve_inputs`] accepts the default of a
/// sensitive input, so that an install that uses it can be destroyed.
///
/// # Errors
/// As [`resolve_inputs`], but with exactly one problem for each sensitive input that has a value or
/// is required.
pub fn choose_inputs(
    config: &AppConfig,
    given: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, String>, Vec<InputProblem>> {
    let resolved = resolve_inputs(config, given);
    let has_value = |input: &&Input| {
        let default = input.default.as_ref().is_some_and(|text| !text.is_empty());
        let given = given.get(&input.name).is_some_and(|value| !value.is_null());
        input.sensitive && (default || given || input.required)
    };
    let sensitive: Vec<&Input> = config.inputs.iter().filter(has_value).collect();
    if sensitive.is_empty() {
        return resolved;
    }
    let mut problems = resolved.err().unwrap_or_default();
    problems.retain(|problem| sensitive.iter().all(|input| input.name != problem.name()));
    let refused = |input: &&Input| InputProblem::Sensitive { name: input.name.clone() };
    problems.extend(sensitive.iter().map(refused));
    Err(problems)
}

enum Resolved {
    Text(String),
    /// Default that is a template. It is rendered after the other inputs are resolved.
    Template(String),
}

fn resolve_input(input: &Input, given: Option<&Value>) -> Result<Resolved, InputProblem> {
    let name = input.name.clone();
    let missing = |name| Err(InputProblem::Missing { name });
    let default = input.default.clone().filter(|text| !text.is_empty());
    let Some(value) = given.filter(|value| !value.is_null()) else {
        return match default {
            Some(default) if is_template(&default) => Ok(Resolved::Template(default)),
            Some(default) if accepts(input.kind, &default) => Ok(Resolved::Text(default)),
            Some(default) => Err(type_error(input, &default)),
            None if input.required => missing(name),
            None => Ok(Resolved::Text(String::new())),
        };
    };
    if input.sensitive {
        return Err(InputProblem::Sensitive { name });
    }
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    if text.is_empty() {
        return if input.required { missing(name) } else { Ok(Resolved::Text(text)) };
    }
    let shape = match (input.kind, value) {
        (_, Value::String(_)) | (InputKind::Json, _) | (InputKind::List, Value::Array(_)) => true,
        (InputKind::Number | InputKind::String, Value::Number(_)) => true,
        (InputKind::Bool | InputKind::String, Value::Bool(_)) => true,
        (
            _,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_),
        ) => false,
    };
    if shape && accepts(input.kind, &text) {
        return Ok(Resolved::Text(text));
    }
    Err(type_error(input, &text))
}

/// Checks that a string is empty or a valid value of an input.
pub(crate) fn check_value(input: &Input, text: &str) -> Result<(), InputProblem> {
    if text.is_empty() || accepts(input.kind, text) { Ok(()) } else { Err(type_error(input, text)) }
}

fn type_error(input: &Input, text: &str) -> InputProblem {
    let found = match input.sensitive {
        // The value may be a default in clear text. Do not repeat it.
        true => "its current value".to_string(),
        false => format!("{:?}", text.chars().take(60).collect::<String>()),
    };
    InputProblem::IllTyped { name: input.name.clone(), expected: expected_type(input.kind), found }
}

/// True if a string is a valid value of this kind.
pub(crate) fn accepts(kind: InputKind, text: &str) -> bool {
    match kind {
        InputKind::String => true,
        // Parsed as JSON: `1e3` is a number; ` 1`, `0x1` and `NaN` are not.
        InputKind::Number => {
            text.trim() == text && serde_json::from_str::<Value>(text).is_ok_and(|v| v.is_number())
        }
        InputKind::Bool => matches!(text, "true" | "false"),
        InputKind::Json => serde_json::from_str::<Value>(text).is_ok(),
        // Real configs use two forms: JSON, or items separated by commas.
        InputKind::List => {
            !text.trim_start().starts_with('[')
                || serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_array())
        }
    }
}

fn expected_type(kind: InputKind) -> &'static str {
    match kind {
        InputKind::String => "a string",
        InputKind::Number => "a number",
        InputKind::List => "a list",
        InputKind::Json => "JSON",
        InputKind::Bool => "true or false",
    }
}

fn nearest_input(config: &AppConfig, name: &str) -> Option<String> {
    let known = config.inputs.iter().map(|input| input.name.as_str());
    nearest(name, known).map(str::to_string)
}
