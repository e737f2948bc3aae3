//! What an install was given, held against what the app asks.
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    diagnostic::nearest,
    model::{AppConfig, Input, InputKind},
    template::{is_template, render},
    text::Origin,
};

/// What is wrong with one given input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum InputProblem {
    #[error("there is no input `{name}`{}", meant(.nearest))]
    Unknown {
        name: String,
        /// The declared input that is spelled most like it.
        #[serde(skip_serializing_if = "Option::is_none")]
        nearest: Option<String>,
    },
    #[error("the input `{name}` is required and was not given")]
    Missing { name: String },
    #[error("the input `{name}` has to be {wanted}, not {found}")]
    IllTyped { name: String, wanted: &'static str, found: String },
    #[error("the input `{name}` is sensitive, which comes with a later release")]
    Sensitive { name: String },
    #[error("the default of the input `{name}` cannot be made from the other inputs: {why}")]
    Underived { name: String, why: String },
}

impl InputProblem {
    /// The input that it is about.
    pub fn name(&self) -> &str {
        match self {
            InputProblem::Unknown { name, .. }
            | InputProblem::Missing { name }
            | InputProblem::IllTyped { name, .. }
            | InputProblem::Sensitive { name }
            | InputProblem::Underived { name, .. } => name,
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            InputProblem::Unknown { nearest: Some(nearest), .. } => {
                format!("did you mean `{nearest}`?")
            }
            InputProblem::Unknown { nearest: None, .. } => "leave it out".to_string(),
            InputProblem::Missing { name } | InputProblem::Underived { name, .. } => {
                format!("give it: --input {name}=…")
            }
            InputProblem::IllTyped { name, wanted, .. } => {
                format!("give {wanted}: --input {name}=…")
            }
            InputProblem::Sensitive { .. } => {
                "take the value in the account, in the module".to_string()
            }
        }
    }
}

fn meant(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// Every declared input with its text: as given, else its default, else empty. Templates always see
/// texts (`"8"`, `"true"`, `["a"]`), and they see every declared input. A default that is itself a
/// template may read the inputs that are none.
///
/// # Errors
/// Everything that is wrong with what was given, by input.
pub fn resolve_inputs(
    config: &AppConfig,
    given: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, String>, Vec<InputProblem>> {
    let mut problems: Vec<InputProblem> = given
        .keys()
        .filter(|name| config.input(name).is_none())
        .map(|name| InputProblem::Unknown { name: name.clone(), nearest: meant_by(config, name) })
        .collect();
    let (mut resolved, mut derived) = (BTreeMap::new(), Vec::new());
    for input in &config.inputs {
        match one(input, given.get(&input.name)) {
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
            Ok(text) => problems.push(ill_typed(input, &text)),
            Err(_) if input.sensitive => {
                let why = "its template fails".to_string();
                problems.push(InputProblem::Underived { name, why });
            }
            Err(error) => problems.push(InputProblem::Underived { name, why: error.message }),
        }
    }
    if problems.is_empty() { Ok(resolved) } else { Err(problems) }
}

/// The same where a version or its inputs are chosen: there no sensitive input may have a value, wherever it would
/// come from. A default would be rendered in the clear, and who is asked for one cannot give it. What is deployed
/// already is resolved as it was, so that it can be taken down.
///
/// # Errors
/// Likewise.
pub fn choose_inputs(
    config: &AppConfig,
    given: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, String>, Vec<InputProblem>> {
    let resolved = resolve_inputs(config, given);
    let valued = |input: &&Input| {
        let default = input.default.as_ref().is_some_and(|text| !text.is_empty());
        let given = given.get(&input.name).is_some_and(|value| !value.is_null());
        input.sensitive && (default || given || input.required)
    };
    let sensitive: Vec<&Input> = config.inputs.iter().filter(valued).collect();
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
    /// A default that waits for the other inputs.
    Template(String),
}

fn one(input: &Input, given: Option<&Value>) -> Result<Resolved, InputProblem> {
    let name = input.name.clone();
    let missing = |name| Err(InputProblem::Missing { name });
    let default = input.default.clone().filter(|text| !text.is_empty());
    let Some(value) = given.filter(|value| !value.is_null()) else {
        return match default {
            Some(default) if is_template(&default) => Ok(Resolved::Template(default)),
            Some(default) if accepts(input.kind, &default) => Ok(Resolved::Text(default)),
            Some(default) => Err(ill_typed(input, &default)),
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
    Err(ill_typed(input, &text))
}

/// Whether a text that somebody wrote down for an input is a value of it.
pub(crate) fn given(input: &Input, text: &str) -> Result<(), InputProblem> {
    if text.is_empty() || accepts(input.kind, text) { Ok(()) } else { Err(ill_typed(input, text)) }
}

fn ill_typed(input: &Input, text: &str) -> InputProblem {
    let found = match input.sensitive {
        // It may be the default, which was written in the clear and is said no further.
        true => "what it is".to_string(),
        false => format!("{:?}", text.chars().take(60).collect::<String>()),
    };
    InputProblem::IllTyped { name: input.name.clone(), wanted: wanted(input.kind), found }
}

/// Whether a text is a value of a kind.
pub(crate) fn accepts(kind: InputKind, text: &str) -> bool {
    match kind {
        InputKind::String => true,
        // Read as JSON, so that `1e3` is a number, and ` 1`, `0x1` and `NaN` are none.
        InputKind::Number => {
            text.trim() == text && serde_json::from_str::<Value>(text).is_ok_and(|v| v.is_number())
        }
        InputKind::Bool => matches!(text, "true" | "false"),
        InputKind::Json => serde_json::from_str::<Value>(text).is_ok(),
        // Either spelling is found in real configs: JSON, or items with commas between them.
        InputKind::List => {
            !text.trim_start().starts_with('[')
                || serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_array())
        }
    }
}

fn wanted(kind: InputKind) -> &'static str {
    match kind {
        InputKind::String => "a string",
        InputKind::Number => "a number",
        InputKind::List => "a list",
        InputKind::Json => "JSON",
        InputKind::Bool => "true or false",
    }
}

fn meant_by(config: &AppConfig, name: &str) -> Option<String> {
    let known = config.inputs.iter().map(|input| input.name.as_str());
    nearest(name, known).map(str::to_string)
}
