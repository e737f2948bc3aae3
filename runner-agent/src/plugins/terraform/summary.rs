//! Summarizes the output of `show -json` for a plan, without any value.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::plugins::{
    contract::PluginError,
    plugin::{Action, Changes, OutputChange, ResourceChange},
};

/// Output of `show -json` for a plan.
#[derive(Deserialize)]
pub(super) struct ShownPlan {
    #[serde(default)]
    pub resource_changes: Vec<Resource>,
    #[serde(default)]
    pub output_changes: BTreeMap<String, ChangeValues>,
}

#[derive(Deserialize)]
pub(super) struct Resource {
    pub address: String,
    pub mode: String,
    pub change: ChangeValues,
}

/// Values of a change. The members after `after` have the structure of the values, with `true` in
/// place of each value that is unknown or sensitive.
#[derive(Deserialize)]
pub(super) struct ChangeValues {
    pub actions: Vec<String>,
    #[serde(default)]
    pub before: Value,
    #[serde(default)]
    pub after: Value,
    #[serde(default)]
    pub after_unknown: Value,
    #[serde(default)]
    pub before_sensitive: Value,
    #[serde(default)]
    pub after_sensitive: Value,
    /// Paths of the attributes that force the replacement.
    #[serde(default)]
    pub replace_paths: Vec<Vec<Value>>,
}

/// Parses the output of `show -json`.
pub(super) fn parse(shown: &[u8]) -> Result<ShownPlan, PluginError> {
    serde_json::from_slice(shown)
        .map_err(|e| PluginError::PluginFailed(format!("cannot parse its plan: {e}")))
}

/// Returns the names and actions of all changes. The caller must set `noop` and `details`.
pub(super) fn summarize(shown: ShownPlan) -> Changes {
    let mut changes = Changes::default();
    for resource in shown.resource_changes.iter().filter(|resource| resource.mode == "managed") {
        let Some(action) = action(&resource.change.actions) else { continue };
        match action {
            Action::Create => changes.add += 1,
            Action::Update => changes.change += 1,
            Action::Delete => changes.destroy += 1,
            Action::Replace => {
                changes.add += 1;
                changes.destroy += 1;
            }
            // Nothing is created or removed: Terraform only stops managing the resource.
            Action::Forget | Action::Adopt => {}
        }
        let attributes = match action {
            Action::Create | Action::Update | Action::Replace => {
                changed_attributes(&resource.change)
            }
            Action::Delete | Action::Forget | Action::Adopt => Vec::new(),
        };
        changes.resources.push(ResourceChange {
            address: resource.address.clone(),
            action,
            attributes,
        });
    }
    for (name, change) in shown.output_changes {
        if let Some(action) = action(&change.actions) {
            changes.outputs.push(OutputChange { name, action });
        }
    }
    changes
}

pub(super) fn action(actions: &[String]) -> Option<Action> {
    let actions: Vec<&str> = actions.iter().map(String::as_str).collect();
    match actions.as_slice() {
        ["create"] => Some(Action::Create),
        ["update"] => Some(Action::Update),
        ["delete"] => Some(Action::Delete),
        ["forget"] => Some(Action::Forget),
        ["delete", "create"] | ["create", "delete" | "forget"] => Some(Action::Replace),
        _ => None,
    }
}

fn changed_attributes(change: &ChangeValues) -> Vec<String> {
    let none = Map::new();
    let before = change.before.as_object().unwrap_or(&none);
    let after = change.after.as_object().unwrap_or(&none);
    let unknown = change.after_unknown.as_object().unwrap_or(&none);
    let mut names: Vec<String> = before
        .keys()
        .chain(after.keys())
        .chain(unknown.keys())
        .filter(|name| {
            let value = |of: &Map<String, Value>| of.get(*name).cloned().unwrap_or_default();
            value(before) != value(after) || has_unknown(&value(unknown))
        })
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    names
}

fn has_unknown(value: &Value) -> bool {
    match value {
        Value::Bool(unknown) => *unknown,
        Value::Array(values) => values.iter().any(has_unknown),
        Value::Object(values) => values.values().any(has_unknown),
        Value::Null | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_has_names_and_actions_and_no_value() {
        let shown = json!({
            "resource_changes": [
                { "address": "a.new", "mode": "managed", "change": { "actions": ["create"],
                  "before": null, "after": { "name": "SECRET", "none": null },
                  "after_unknown": { "id": true, "tags": {} } } },
                { "address": "a.same", "mode": "managed", "change": { "actions": ["no-op"] } },
                { "address": "data.x", "mode": "data", "change": { "actions": ["read"] } },
                { "address": "a.other", "mode": "managed", "change": { "actions": ["update"],
                  "before": { "size": 1, "kept": 2 }, "after": { "size": "SECRET", "kept": 2 } } },
                { "address": "a.again", "mode": "managed",
                  "change": { "actions": ["delete", "create"], "before": {}, "after": {} } },
                { "address": "a.old", "mode": "managed", "change": { "actions": ["delete"],
                  "before": { "name": "SECRET" }, "after": null } }
            ],
            "output_changes": { "url": { "actions": ["update"], "after": "SECRET" },
                                "same": { "actions": ["no-op"] } }
        });
        let changes = summarize(parse(shown.to_string().as_bytes()).unwrap());
        assert_eq!((changes.add, changes.change, changes.destroy), (2, 1, 2));
        let json = serde_json::to_value(&changes).unwrap();
        assert!(!json.to_string().contains("SECRET"));
        assert_eq!(
            json["resources"],
            json!([
                { "address": "a.new", "action": "create", "attributes": ["id", "name"] },
                { "address": "a.other", "action": "update", "attributes": ["size"] },
                { "address": "a.again", "action": "replace" },
                { "address": "a.old", "action": "delete" }
            ])
        );
        assert_eq!(json["outputs"], json!([{ "name": "url", "action": "update" }]));
    }
}
