//! Differences between two objects, as paths of fields. A path never contains a value, except for
//! the keys of list items, such as the name of a container.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Keys that identify the items of a list of objects, in the order of preference.
const ITEM_KEYS: [&str; 7] =
    ["name", "containerPort", "port", "mountPath", "devicePath", "ip", "key"];

/// Members of `metadata` that the server assigns or changes with every write.
const SERVER_METADATA: [&str; 6] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];
/// Annotations that controllers write after each apply.
const CONTROLLER_ANNOTATIONS: [&str; 1] = ["deployment.kubernetes.io/revision"];

/// Returns an object without the parts that the server or controllers change: status, server
/// metadata and revisions.
pub fn normalize(object: &Value) -> Value {
    let mut normal = object.clone();
    let Some(members) = normal.as_object_mut() else { return normal };
    members.remove("status");
    if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !SERVER_METADATA.contains(&key.as_str()));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| !CONTROLLER_ANNOTATIONS.contains(&key.as_str()));
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    normal
}

/// Returns the paths that differ between two values.
pub fn differences(before: &Value, after: &Value) -> BTreeSet<String> {
    changes(Some(before), Some(after)).into_keys().collect()
}

/// Value of a path on both sides.
pub type Sides<'v> = (Option<&'v Value>, Option<&'v Value>);

/// Paths that differ between two values, with both values.
pub fn changes<'v>(
    before: Option<&'v Value>,
    after: Option<&'v Value>,
) -> BTreeMap<String, Sides<'v>> {
    let mut found = BTreeMap::new();
    compare("", before, after, &mut found);
    found
}

/// Returns whether a path is one of `roots` or lies below one.
pub fn is_below(path: &str, roots: &[String]) -> bool {
    roots.iter().any(|root| {
        let rest = path.strip_prefix(root.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}

fn compare<'v>(
    path: &str,
    before: Option<&'v Value>,
    after: Option<&'v Value>,
    found: &mut BTreeMap<String, Sides<'v>>,
) {
    if before == after {
        return;
    }
    let whole = (before, after);
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for name in names {
                compare(&member(path, name), before.get(name), after.get(name), found);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            let (by_key, by_key_after) = match (keyed(before), keyed(after)) {
                (Some(before), Some(after)) => (before, after),
                _ => (indexed(before), indexed(after)),
            };
            let names: BTreeSet<&String> = by_key.keys().chain(by_key_after.keys()).collect();
            let before_found = found.len();
            for name in names {
                let sides = (by_key.get(name).copied(), by_key_after.get(name).copied());
                compare(&format!("{path}{name}"), sides.0, sides.1, found);
            }
            // Only the order of the items differs.
            if found.len() == before_found {
                found.insert(path.to_owned(), whole);
            }
        }
        (Some(Value::Null) | None, Some(Value::Object(inner)))
        | (Some(Value::Object(inner)), Some(Value::Null) | None)
            if path.matches(['.', '[']).count() < 2 && !inner.is_empty() =>
        {
            for (name, value) in inner {
                let (before, after) = match before.is_some_and(Value::is_object) {
                    true => (Some(value), None),
                    false => (None, Some(value)),
                };
                compare(&member(path, name), before, after, found);
            }
        }
        _ => {
            found.insert(path.to_owned(), whole);
        }
    }
}

fn member(path: &str, name: &str) -> String {
    let is_plain = !name.is_empty() && !name.contains(['.', '/', '[', ']']);
    match (path.is_empty(), is_plain || name.starts_with('[')) {
        (true, true) => name.to_owned(),
        (false, true) if name.starts_with('[') => format!("{path}{name}"),
        (false, true) => format!("{path}.{name}"),
        (_, false) => format!("{path}[{name}]"),
    }
}

/// Returns the items of a list by the first key that has a distinct value in each item.
fn keyed(items: &[Value]) -> Option<BTreeMap<String, &Value>> {
    ITEM_KEYS.iter().find_map(|key| {
        let named = items.iter().map(|item| {
            let value = item.as_object()?.get(*key)?;
            Some((
                item_name(&Value::Object(Map::from_iter([((*key).into(), value.clone())]))),
                item,
            ))
        });
        let named: BTreeMap<String, &Value> = named.collect::<Option<_>>()?;
        (named.len() == items.len()).then_some(named)
    })
}

fn indexed(items: &[Value]) -> BTreeMap<String, &Value> {
    items.iter().enumerate().map(|(index, item)| (format!("[{index}]"), item)).collect()
}

/// Returns the name of a list item with these keys, such as `[name=web]`.
pub fn item_name(keys: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let keys = keys.as_object().into_iter().flatten();
    let keys = keys.map(|(name, value)| format!("{name}={}", text(value)));
    format!("[{}]", keys.collect::<Vec<_>>().join(","))
}

/// Returns whether the part of a path between its brackets, such as `name=web`, names an item.
pub fn is_item(item: &Value, part: &str) -> bool {
    let Some((key, _)) = part.split_once('=') else { return false };
    let value = item.get(key).cloned().unwrap_or_default();
    item_name(&Value::Object(Map::from_iter([(key.to_owned(), value)]))) == format!("[{part}]")
}

/// Returns the value at a path such as `status.loadBalancer.ingress[0].hostname`. A name in
/// brackets can contain dots: `data[tls.crt]`.
pub fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    let mut value = object;
    for part in parts(path)? {
        value = match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
            Value::Object(members) => members.get(part)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
    }
    Some(value)
}

/// Splits a path into its parts. `None` for an invalid path.
pub fn parts(path: &str) -> Option<Vec<&str>> {
    let (mut found, mut rest) = (vec![], path);
    while !rest.is_empty() {
        let part;
        if let Some(inner) = rest.strip_prefix('[') {
            (part, rest) = inner.split_once(']')?;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            (part, rest) = rest.split_at(end);
        }
        if part.is_empty() {
            return None;
        }
        found.push(part);
        if let Some(next) = rest.strip_prefix('.') {
            if next.is_empty() {
                return None;
            }
            rest = next;
        }
    }
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn diff(before: Value, after: Value) -> Vec<String> {
        differences(&before, &after).into_iter().collect()
    }

    #[test]
    fn differences_are_paths_without_values() {
        let before = json!({ "spec": { "replicas": 1, "containers": [
            { "name": "web", "image": "web:1" }, { "name": "side" } ] },
            "data": { "a.txt": "secret-1", "b": "x" } });
        let after = json!({ "spec": { "replicas": 2, "containers": [
            { "name": "web", "image": "web:2" }, { "name": "new" } ] },
            "data": { "a.txt": "secret-2", "b": "x" } });
        assert_eq!(
            diff(before, after),
            [
                "data[a.txt]",
                "spec.containers[name=new]",
                "spec.containers[name=side]",
                "spec.containers[name=web].image",
                "spec.replicas",
            ]
        );
    }

    #[test]
    fn order_of_items_is_a_difference() {
        let (a, b) = (json!({ "name": "a" }), json!({ "name": "b" }));
        assert_eq!(diff(json!({ "l": [a, b] }), json!({ "l": [b, a] })), ["l"]);
        assert_eq!(diff(json!({ "l": [1, 2] }), json!({ "l": [1, 3] })), ["l[1]"]);
        assert!(diff(json!({ "l": [a] }), json!({ "l": [a] })).is_empty());
    }

    #[test]
    fn path_is_below_a_root_only_at_a_boundary() {
        let roots = ["data.pass".to_owned(), "spec".to_owned()];
        assert!(is_below("data.pass", &roots) && is_below("spec.ports[0]", &roots));
        assert!(!is_below("data.password", &roots) && !is_below("data", &roots));
    }

    #[test]
    fn added_parts_are_named_to_the_second_level() {
        let after = json!({ "spec": { "template": { "x": 1 }, "replicas": 1 } });
        assert_eq!(diff(json!({}), after), ["spec.replicas", "spec.template.x"]);
    }

    #[test]
    fn normalized_objects_have_no_server_state() {
        let object = json!({ "metadata": { "name": "a", "uid": "u", "generation": 3,
            "annotations": { "deployment.kubernetes.io/revision": "2" } },
            "spec": {}, "status": { "replicas": 1 } });
        assert_eq!(normalize(&object), json!({ "metadata": { "name": "a" }, "spec": {} }));
    }

    #[test]
    fn paths_select_members_and_items() {
        let object = json!({ "data": { "tls.crt": "c" }, "list": [{ "host": "h" }] });
        assert_eq!(at(&object, "list[0].host"), Some(&json!("h")));
        assert_eq!(at(&object, "data[tls.crt]"), Some(&json!("c")));
        assert_eq!(at(&object, "list[1].host"), None);
        for invalid in ["", ".", "a..b", "a.", "a[", "a[]"] {
            assert_eq!(parts(invalid), None, "{invalid:?}");
        }
    }
}
