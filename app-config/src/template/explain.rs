//! Variables of a template: name, source, and value in a state.
use serde::Serialize;
use serde_json::Value as Json;

use super::{
    Template,
    reads::{self, ANY},
};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Variable {
    /// Name as in templates. `*` stands for any key.
    pub name: String,
    /// Description of the value's source, such as `the input size`.
    pub from: String,
    /// True if a read of the value fails when it is absent. `index` and `dig` tolerate its absence.
    pub needed: bool,
    pub missing: bool,
    /// Value in the state. `None` if it is missing or the name stands for several values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
}

impl Template {
    /// Variables that the template may read, by name.
    pub fn variables(&self, state: &Json) -> Vec<Variable> {
        let top = state.get("nuon").or_else(|| state.get("stead")).unwrap_or(&Json::Null);
        let found = reads::reads(self.parsed());
        let variable = |(path, needed): (Vec<String>, bool)| {
            let parts: Vec<&str> = path.iter().map(String::as_str).collect();
            let any = parts.contains(&ANY);
            let found = value_at(top, &parts);
            Variable {
                name: format!(
                    ".nuon{}",
                    parts.iter().map(|part| format!(".{part}")).collect::<String>()
                ),
                from: source(&parts),
                needed,
                missing: found.is_none(),
                value: found.filter(|_| !any).cloned(),
            }
        };
        found.into_iter().map(variable).collect()
    }
}

/// Value at a path. If the path stands for several values, the first one.
fn value_at<'j>(json: &'j Json, path: &[&str]) -> Option<&'j Json> {
    let Some((first, rest)) = path.split_first() else { return Some(json) };
    if *first != ANY {
        return value_at(json.get(first)?, rest);
    }
    if let Some(entries) = json.as_object() {
        return entries.values().find_map(|item| value_at(item, rest));
    }
    json.as_array()?.iter().find_map(|item| value_at(item, rest))
}

fn source(path: &[&str]) -> String {
    match path {
        ["inputs", "inputs", name, ..] | ["install", "inputs", name, ..] => {
            format!("the input {name}")
        }
        ["components", name, "outputs", output, ..] => {
            format!("the output {output} of the component {name}")
        }
        ["components", name, ..] => format!("the component {name}"),
        ["sandbox", "outputs", output, ..] | ["install", "sandbox", "outputs", output, ..] => {
            format!("the output {output} of the sandbox")
        }
        ["sandbox", ..] | ["install", "sandbox", ..] => "the sandbox".to_string(),
        ["install_stack", "outputs", output, ..] => format!("the output {output} of the stack"),
        ["install_stack", ..] => "the stack".to_string(),
        ["secrets", name, ..] | ["install", "secrets", name, ..] => format!("the secret {name}"),
        ["actions", "workflows", name, ..] | ["actions", name, ..] => format!("the action {name}"),
        ["cloud_account", ..] => "the cloud account of the install".to_string(),
        ["inputs", ..] => "the inputs".to_string(),
        [] => "the whole state".to_string(),
        [part, ..] => format!("the {}", part.replace('_', " ")),
    }
}
