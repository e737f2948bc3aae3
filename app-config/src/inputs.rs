//! Checks the inputs of an install against the inputs that the app declares.
use std::collections::BTreeMap;

use domain::secret::{of_placeholder, placeholder};
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
    #[error("the install waits for the sensitive input `{name}`")]
    MissingSensitive { name: String },
    #[error("the install waits for the secret `{name}` of the customer")]
    MissingSecret { name: String },
    #[error("invalid value of the input `{name}`: must be {expected}, not {found}")]
    IllTyped { name: String, expected: &'static str, found: String },
    #[error(
        "the input `{name}` is sensitive: its value must be encrypted to the keys of the install"
    )]
    Sensitive { name: String },
    #[error("the secret `{name}` can only be set by the customer")]
    SetByVendor { name: String },
    #[error("cannot render the default of the input `{name}`: {why}")]
    DefaultFailed { name: String, why: String },
}

impl InputProblem {
    pub fn name(&self) -> &str {
        match self {
            InputProblem::Unknown { name, .. }
            | InputProblem::Missing { name }
            | InputProblem::MissingSensitive { name }
            | InputProblem::MissingSecret { name }
            | InputProblem::IllTyped { name, .. }
            | InputProblem::Sensitive { name }
            | InputProblem::SetByVendor { name }
            | InputProblem::DefaultFailed { name, .. } => name,
        }
    }

    pub fn remedy(&self) -> String {
        match self {
            InputProblem::Unknown { nearest: Some(nearest), .. } => {
                format!("did you mean `{nearest}`?")
            }
            InputProblem::Unknown { nearest: None, .. } => "omit the input".to_string(),
            InputProblem::MissingSensitive { name } => format!(
                "`stead installs set-inputs INSTALL --secret {name}=FILE` encrypts it, or the customer sets it \
                 with `stead-runner secret set {name}`"
            ),
            InputProblem::MissingSecret { name } | InputProblem::SetByVendor { name } => {
                format!("the customer sets it with `stead-runner secret set {name}`")
            }
            InputProblem::Missing { name } | InputProblem::DefaultFailed { name, .. } => {
                format!("add --input {name}=…")
            }
            InputProblem::IllTyped { name, expected, .. } => {
                format!("set {expected}: --input {name}=…")
            }
            InputProblem::Sensitive { name } => {
                format!("`stead installs set-inputs INSTALL --secret {name}=FILE` encrypts it")
            }
        }
    }
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// Resolves every declared input to a string: the given value, else the default, else an empty
/// string. Templates see all declared inputs, always as strings (`"8"`, `"true"`, `["a"]`). A
/// default that is a template may read only inputs whose values are not templates. Secrets of the
/// config count as sensitive inputs. The value of a sensitive input is `encrypted:` and its id, or the default of the config in clear text.
///
/// # Errors
/// All problems with given values and with defaults.
pub fn resolve_inputs(
    config: &AppConfig,
    given: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, String>, Vec<InputProblem>> {
    let resolved = choose_inputs(config, given);
    let missing: Vec<InputProblem> = awaited_inputs(config, given)
        .into_iter()
        .map(|name| match config.secret_input(&name) {
            Some(_) => InputProblem::MissingSecret { name },
            None => InputProblem::MissingSensitive { name },
        })
        .collect();
    match resolved {
        Ok(resolved) if missing.is_empty() => Ok(resolved),
        resolved => Err(resolved.err().into_iter().flatten().chain(missing).collect()),
    }
}

/// Returns the required sensitive inputs and secrets that have no value yet. The install waits for them: before
/// it has a runner, no key exists to encrypt them.
pub fn awaited_inputs(config: &AppConfig, given: &BTreeMap<String, Value>) -> Vec<String> {
    let is_awaited = |input: &&Input| {
        let default = input.default.as_ref().is_some_and(|text| !text.is_empty());
        let given = given.get(&input.name).is_some_and(|value| !value.is_null());
        input.sensitive && input.required && !default && !given
    };
    config.install_values().filter(is_awaited).map(|input| input.name.clone()).collect()
}

/// Resolves inputs when a user chooses a version or its inputs, as [`resolve_inputs`]. The inputs of
/// [`awaited_inputs`] may be given later.
///
/// # Errors
/// All problems with given values and with defaults.
pub fn choose_inputs(
    config: &AppConfig,
    given: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, String>, Vec<InputProblem>> {
    let mut problems: Vec<InputProblem> = given
        .keys()
        .filter(|name| config.install_value(name).is_none())
        .map(|name| InputProblem::Unknown {
            name: name.clone(),
            nearest: nearest_input(config, name),
        })
        .collect();
    let (mut resolved, mut derived) = (BTreeMap::new(), Vec::new());
    for input in config.install_values() {
        match resolve_input(input, given.get(&input.name)) {
            Ok(Resolved::Text(text)) => {
                resolved.insert(input.name.clone(), text);
            }
            Ok(Resolved::Template(template)) => derived.push((input, template)),
            Err(InputProblem::Sensitive { name }) if config.secret_input(&name).is_some() => {
                problems.push(InputProblem::SetByVendor { name });
            }
            Err(problem) => problems.push(problem),
        }
    }
    // A default must not contain the id of a sensitive value in place of the value.
    let is_plain = |name: &&String| config.input(name).is_some_and(|input| !input.sensitive);
    let readable: BTreeMap<&String, &String> =
        resolved.iter().filter(|(name, _)| is_plain(name)).collect();
    let state = json!({"nuon": {"inputs": {"inputs": readable}, "install": {"inputs": readable}}});
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
            // See `awaited_inputs`.
            None if input.required && !input.sensitive => missing(name),
            None => Ok(Resolved::Text(String::new())),
        };
    };
    if input.sensitive {
        let id = value.as_str().and_then(of_placeholder);
        let id = id.ok_or(InputProblem::Sensitive { name })?;
        return Ok(Resolved::Text(placeholder(id)));
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
pub fn accepts(kind: InputKind, text: &str) -> bool {
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
