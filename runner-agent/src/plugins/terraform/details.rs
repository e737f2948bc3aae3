//! Details of a Terraform plan: the changed values of each resource and output, without sensitive
//! ones.

use std::collections::BTreeSet;

use serde_json::Value;

use super::summary::{self, ChangeValues, ShownPlan};
use crate::plugins::{
    cluster::OUTPUT as KUBECONFIG_OUTPUT,
    plugin::{Action, AttributeDetails, DetailValue, PlanDetails, ResourceDetails},
};

/// Returns the details of all changes in the output of `show -json`.
pub(super) fn details(shown: &ShownPlan) -> PlanDetails {
    let known = known_sensitive(shown);
    let managed = shown.resource_changes.iter().filter(|resource| resource.mode == "managed");
    let resources =
        managed.filter_map(|resource| of_change(&resource.address, &resource.change, &known));
    let outputs = shown.output_changes.iter();
    let outputs = outputs.filter_map(|(name, change)| {
        let details = of_change(name, change, &known)?;
        Some(if name == KUBECONFIG_OUTPUT { hidden(details) } else { details })
    });
    PlanDetails { resources: resources.collect(), outputs: outputs.collect(), omitted: 0 }
}

/// Hides all values of an output. The runner never reports a kubeconfig, even if the module does not
/// mark it as sensitive.
fn hidden(mut details: ResourceDetails) -> ResourceDetails {
    for attribute in &mut details.attributes {
        for side in [&mut attribute.before, &mut attribute.after] {
            if let Some(DetailValue::Value(_) | DetailValue::Truncated { .. }) = side {
                *side = Some(DetailValue::Sensitive);
            }
        }
    }
    details
}

/// Shortest sensitive text that is also hidden elsewhere. Shorter ones, such as `no`, are in many
/// values.
const MIN_KNOWN: usize = 6;

/// Returns the sensitive texts of a plan. Terraform does not mark every copy of a sensitive value: a
/// provider can return it in another attribute.
fn known_sensitive(shown: &ShownPlan) -> BTreeSet<String> {
    fn collect(value: &Value, marks: &Value, known: &mut BTreeSet<String>) {
        let mark = |child: Option<&Value>| -> Value {
            if *marks == true { Value::Bool(true) } else { child.cloned().unwrap_or_default() }
        };
        match value {
            Value::String(text) if *marks == true && text.len() >= MIN_KNOWN => {
                known.insert(text.clone());
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    collect(item, &mark(marks.get(index)), known);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    collect(member, &mark(marks.get(name)), known);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let changes = shown.resource_changes.iter().map(|resource| &resource.change);
    let mut known = BTreeSet::new();
    for change in changes.chain(shown.output_changes.values()) {
        collect(&change.before, &change.before_sensitive, &mut known);
        collect(&change.after, &change.after_sensitive, &mut known);
    }
    known
}

fn of_change(
    address: &str,
    change: &ChangeValues,
    known: &BTreeSet<String>,
) -> Option<ResourceDetails> {
    let action = summary::action(&change.actions)?;
    let mut attributes = Vec::new();
    match action {
        Action::Create | Action::Update | Action::Delete | Action::Replace => {
            let (before, after) = (Side::before(change), Side::after(change));
            let mut comparison = Comparison { change, known, found: vec![] };
            comparison.compare(&mut Vec::new(), before, after);
            attributes = comparison.found;
        }
        // Terraform stops or starts managing the resource and changes no value.
        Action::Forget | Action::Adopt => {}
    }
    Some(ResourceDetails { address: address.to_owned(), action, attributes, omitted: 0 })
}

/// Value on one side of a change, with its marks. A mark has the structure of the value, or is `true`
/// for the whole value.
#[derive(Clone, Copy)]
struct Side<'v> {
    value: &'v Value,
    sensitive: &'v Value,
    unknown: &'v Value,
}

/// Part of a path: the name of a member, or the index of an item.
#[derive(Clone, PartialEq)]
enum Part {
    Name(String),
    Index(usize),
}

impl<'v> Side<'v> {
    fn before(change: &'v ChangeValues) -> Self {
        let (value, sensitive) = (&change.before, &change.before_sensitive);
        Side { value, sensitive, unknown: &Value::Null }
    }

    fn after(change: &'v ChangeValues) -> Self {
        let (value, sensitive) = (&change.after, &change.after_sensitive);
        Side { value, sensitive, unknown: &change.after_unknown }
    }

    fn is_sensitive(self) -> bool {
        *self.sensitive == true
    }

    fn is_unknown(self) -> bool {
        *self.unknown == true
    }

    fn child(self, part: &Part) -> Self {
        let of = |value: &'v Value| {
            let child = match part {
                Part::Name(name) => value.get(name),
                Part::Index(index) => value.get(index),
            };
            child.unwrap_or(&Value::Null)
        };
        Side { value: of(self.value), sensitive: of(self.sensitive), unknown: of(self.unknown) }
    }

    /// Returns the members or items of the value and of its marks. Unknown members are in the marks
    /// only.
    fn parts(self) -> Vec<Part> {
        let mut parts = Vec::new();
        for value in [self.value, self.unknown, self.sensitive] {
            match value {
                Value::Object(members) => {
                    parts.extend(members.keys().map(|name| Part::Name(name.clone())));
                }
                Value::Array(items) => parts.extend((0..items.len()).map(Part::Index)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        parts
    }

    /// Returns true if the value or its unknown part has members or items to descend into.
    fn has_parts(self) -> bool {
        let has = |value: &Value| match value {
            Value::Object(members) => !members.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        };
        has(self.value) || (self.value.is_null() && has(self.unknown))
    }

    fn shown(self, known: &BTreeSet<String>) -> Option<DetailValue> {
        if self.is_sensitive() {
            // A sensitive value that is absent on one side is a creation or removal.
            return (!self.value.is_null() || self.is_unknown()).then_some(DetailValue::Sensitive);
        }
        if self.is_unknown() {
            return Some(DetailValue::KnownAfterApply);
        }
        if self.value.is_null() {
            return None;
        }
        let masked = self.masked(known);
        Some(if masked == SENSITIVE { DetailValue::Sensitive } else { DetailValue::of(&masked) })
    }

    /// Returns the value with a placeholder for each sensitive part.
    fn masked(self, known: &BTreeSet<String>) -> Value {
        if self.is_sensitive() {
            return Value::String(SENSITIVE.into());
        }
        match self.value {
            Value::String(text) if known.iter().any(|secret| text.contains(secret)) => {
                Value::String(SENSITIVE.into())
            }
            Value::Array(items) => {
                let items = (0..items.len()).map(|n| self.child(&Part::Index(n)).masked(known));
                Value::Array(items.collect())
            }
            Value::Object(members) => {
                let masked = |name: &String| {
                    let hidden = known.iter().any(|secret| name.contains(secret));
                    let shown = if hidden { SENSITIVE.into() } else { name.clone() };
                    (shown, self.child(&Part::Name(name.clone())).masked(known))
                };
                Value::Object(members.keys().map(masked).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.value.clone()
            }
        }
    }
}

/// Placeholder of a sensitive part of a value.
const SENSITIVE: &str = "(sensitive)";

/// Comparison of both sides of a change.
struct Comparison<'c> {
    change: &'c ChangeValues,
    known: &'c BTreeSet<String>,
    found: Vec<AttributeDetails>,
}

impl Comparison<'_> {
    /// Adds the changed leaves of a value.
    fn compare(&mut self, path: &mut Vec<Part>, before: Side<'_>, after: Side<'_>) {
        let is_leaf = before.is_sensitive() || after.is_sensitive() || after.is_unknown();
        if !is_leaf && (before.has_parts() || after.has_parts()) {
            let mut seen = BTreeSet::new();
            for part in before.parts().into_iter().chain(after.parts()) {
                let key = match &part {
                    Part::Name(name) => (name.clone(), 0),
                    Part::Index(index) => (String::new(), *index),
                };
                if seen.insert(key) {
                    let (before, after) = (before.child(&part), after.child(&part));
                    path.push(part);
                    self.compare(path, before, after);
                    path.pop();
                }
            }
            return;
        }
        if before.value == after.value && !after.is_unknown() {
            return;
        }
        let is_hidden = before.is_sensitive() || after.is_sensitive();
        let shown = |side: Side<'_>| match side.shown(self.known) {
            // A value that becomes or was sensitive is not shown on the other side either.
            Some(DetailValue::Value(_) | DetailValue::Truncated { .. }) if is_hidden => {
                Some(DetailValue::Sensitive)
            }
            shown => shown,
        };
        let (before, after) = (shown(before), shown(after));
        if before.is_none() && after.is_none() {
            return;
        }
        let replaces = forces_replacement(path, self.change);
        self.found.push(AttributeDetails { path: text(path), before, after, replaces });
    }
}

fn forces_replacement(path: &[Part], change: &ChangeValues) -> bool {
    change.replace_paths.iter().any(|forcing| {
        // A path can name a part of this value, or a value that contains it.
        forcing.iter().zip(path).all(|(step, part)| match part {
            Part::Name(name) => step.as_str() == Some(name),
            Part::Index(index) => step.as_u64() == u64::try_from(*index).ok() || step.is_object(),
        })
    })
}

fn text(path: &[Part]) -> String {
    let mut text = String::new();
    for part in path {
        match part {
            Part::Index(index) => text += &format!("[{index}]"),
            Part::Name(name) if name.is_empty() || name.contains(['.', '[', ']']) => {
                text += &format!("[{name:?}]");
            }
            Part::Name(name) if text.is_empty() => text += name,
            Part::Name(name) => text += &format!(".{name}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(change: Value) -> Value {
        let plan = json!({ "resource_changes":
            [{ "address": "a.b", "mode": "managed", "change": change }] });
        let plan = summary::parse(plan.to_string().as_bytes()).unwrap();
        serde_json::to_value(&details(&plan).resources[0]).unwrap()["attributes"].clone()
    }

    #[test]
    fn changed_leaves_are_shown_with_both_values() {
        let change = json!({ "actions": ["update"],
            "before": { "size": 1, "same": "x", "tags": { "a.b": "1", "Name": "old" }, "ips": ["1"] },
            "after": { "size": 2, "same": "x", "tags": { "Name": "new" }, "ips": ["1", "2"] },
            "after_unknown": { "id": true, "tags": {} } });
        assert_eq!(
            shown(change),
            json!([
                { "path": "ips[1]", "after": { "value": "2" } },
                { "path": "size", "before": { "value": 1 }, "after": { "value": 2 } },
                { "path": "tags.Name", "before": { "value": "old" }, "after": { "value": "new" } },
                { "path": "tags[\"a.b\"]", "before": { "value": "1" } },
                { "path": "id", "after": "known_after_apply" },
            ])
        );
    }

    #[test]
    fn a_sensitive_value_is_never_shown() {
        for (before, after, before_sensitive, after_sensitive) in [
            (json!({ "p": "SECRET1" }), json!({ "p": "SECRET2" }), json!({}), json!({ "p": true })),
            (json!({ "p": "SECRET1" }), json!({ "p": "SECRET2" }), json!({ "p": true }), json!({})),
            (json!({ "p": "SECRET1" }), Value::Null, json!({ "p": true }), json!(false)),
            (Value::Null, json!({ "p": "SECRET1" }), json!(false), json!({ "p": true })),
            (json!({ "p": "SECRET1" }), json!({ "p": "SECRET2" }), json!(true), json!(true)),
            (
                json!({ "p": [{ "q": "SECRET1", "r": "SECRET3" }] }),
                json!({ "p": [{ "q": "SECRET2", "r": "SECRET3" }, { "q": "SECRET4" }] }),
                json!({ "p": [{ "q": true }] }),
                json!({ "p": [{ "q": true }, { "q": true }] }),
            ),
        ] {
            let change = json!({ "actions": ["update"], "before": before, "after": after,
                "before_sensitive": before_sensitive, "after_sensitive": after_sensitive });
            let text = shown(change).to_string();
            assert!(!text.contains("SECRET") && text.contains("\"sensitive\""), "{text}");
        }
        let unchanged = json!({ "actions": ["update"], "before": { "p": "SECRET" },
            "after": { "p": "SECRET" }, "before_sensitive": {}, "after_sensitive": { "p": true } });
        assert_eq!(shown(unchanged), Value::Null);
    }

    #[test]
    fn an_unmarked_copy_of_a_sensitive_value_is_hidden() {
        let change = json!({ "actions": ["update"],
            "before": { "input": ["SECRET-1"], "output": { "SECRET-1": ["x SECRET-1", 7] } },
            "after": { "input": ["SECRET-2"], "name": "of SECRET-2" },
            "after_unknown": { "output": true },
            "before_sensitive": { "input": [true] }, "after_sensitive": { "input": [true] } });
        let shown = shown(change);
        assert!(!shown.to_string().contains("SECRET"), "{shown}");
        let sensitive = json!({ "(sensitive)": ["(sensitive)", 7] });
        let output = shown.as_array().unwrap().iter().find(|one| one["path"] == "output");
        let output = output.unwrap();
        assert_eq!(output["before"]["value"], sensitive);
        assert_eq!(output["after"], "known_after_apply");
    }

    #[test]
    fn attributes_that_force_the_replacement_are_marked() {
        let change = json!({ "actions": ["delete", "create"],
            "before": { "ami": "a", "disk": [{ "size": 1 }], "name": "x" },
            "after": { "ami": "b", "disk": [{ "size": 2 }], "name": "y" },
            "replace_paths": [["ami"], ["disk", 0, "size"]] });
        let shown = shown(change);
        let replaces = |path: &str| {
            let one = shown.as_array().unwrap().iter().find(|one| one["path"] == path);
            one.unwrap().get("replaces") == Some(&json!(true))
        };
        assert!(replaces("ami") && replaces("disk[0].size") && !replaces("name"));
    }

    #[test]
    fn a_kubeconfig_is_hidden_without_a_mark() {
        for (before, after) in [
            (json!("token: SECRET1"), json!("token: SECRET2")),
            (Value::Null, json!({ "users": [{ "token": "SECRET" }] })),
        ] {
            let plan = json!({ "output_changes": { "kubeconfig": { "actions": ["update"],
                "before": before, "after": after, "after_unknown": false } } });
            let plan = summary::parse(plan.to_string().as_bytes()).unwrap();
            let text = serde_json::to_string(&details(&plan)).unwrap();
            assert!(!text.contains("SECRET") && text.contains("\"sensitive\""), "{text}");
        }
    }

    #[test]
    fn outputs_have_one_value() {
        let plan = json!({ "output_changes": {
            "url": { "actions": ["create"], "before": null, "after": "http://a",
                     "after_unknown": false, "before_sensitive": false, "after_sensitive": false },
            "key": { "actions": ["create"], "before": null, "after": "SECRET",
                     "after_unknown": false, "before_sensitive": true, "after_sensitive": true },
            "ip": { "actions": ["create"], "before": null, "after_unknown": true } } });
        let plan = summary::parse(plan.to_string().as_bytes()).unwrap();
        let outputs = serde_json::to_value(details(&plan).outputs).unwrap();
        assert_eq!(
            outputs,
            json!([
                { "address": "ip", "action": "create",
                  "attributes": [{ "path": "", "after": "known_after_apply" }] },
                { "address": "key", "action": "create",
                  "attributes": [{ "path": "", "after": "sensitive" }] },
                { "address": "url", "action": "create",
                  "attributes": [{ "path": "", "after": { "value": "http://a" } }] },
            ])
        );
    }
}
