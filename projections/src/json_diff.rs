//! Compares two JSON documents by readable paths, such as `components.api.config_version`.
use serde_json::Value;

/// A field that differs between two documents. An absent field is null.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldChange {
    pub path: String,
    pub before: Value,
    pub after: Value,
}

/// Returns every field that differs between two documents, ordered by the parts of its path. An
/// object that only one document has is listed field by field.
pub fn differences(before: &Value, after: &Value) -> Vec<FieldChange> {
    let mut changes = vec![];
    differing(String::new(), before, after, &mut changes);
    changes
}

fn differing(path: String, before: &Value, after: &Value, changes: &mut Vec<FieldChange>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Value::Object(a), Value::Object(b)) => members(&path, a, b, changes),
        (Value::Object(a), Value::Null) if !a.is_empty() => {
            members(&path, a, &serde_json::Map::new(), changes);
        }
        (Value::Null, Value::Object(b)) if !b.is_empty() => {
            members(&path, &serde_json::Map::new(), b, changes);
        }
        (Value::Array(a), Value::Array(b)) if is_nested(a) || is_nested(b) => {
            items(&path, a, b, changes);
        }
        (Value::Array(a), Value::Null) if is_nested(a) => items(&path, a, &[], changes),
        (Value::Null, Value::Array(b)) if is_nested(b) => items(&path, &[], b, changes),
        (before, after) => {
            let (before, after) = (before.clone(), after.clone());
            changes.push(FieldChange { path, before, after });
        }
    }
}

type Members = serde_json::Map<String, Value>;

fn members(path: &str, a: &Members, b: &Members, changes: &mut Vec<FieldChange>) {
    let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let (a, b) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
        differing(joined(path, key), a, b, changes);
    }
}

fn items(path: &str, a: &[Value], b: &[Value], changes: &mut Vec<FieldChange>) {
    for at in 0..a.len().max(b.len()) {
        let (a, b) = (a.get(at).unwrap_or(&Value::Null), b.get(at).unwrap_or(&Value::Null));
        differing(format!("{path}[{at}]"), a, b, changes);
    }
}

/// Returns true if the list contains objects or arrays. Only such lists are compared by index: in a
/// list of plain values, one new value at the start would change every index.
fn is_nested(list: &[Value]) -> bool {
    list.iter().any(|item| item.is_object() || item.is_array())
}

/// A key that contains a separator is quoted, so that it cannot be read as two parts of a path.
fn joined(path: &str, key: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match (path, !key.is_empty() && key.bytes().all(plain)) {
        ("", true) => key.to_owned(),
        (path, true) => format!("{path}.{key}"),
        (path, false) => format!("{path}[{}]", Value::from(key)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changes(before: Value, after: Value) -> Vec<String> {
        let changes = |one: FieldChange| format!("{} {} {}", one.path, one.before, one.after);
        differences(&before, &after).into_iter().map(changes).collect()
    }

    #[test]
    fn a_field_that_differs_is_named_by_its_path() {
        let before = json!({"size": 1, "db": {"url": "a", "same": 1}, "gone": true});
        let after = json!({"size": 2, "db": {"url": "b", "same": 1}, "new": null});
        assert_eq!(changes(before, after), ["db.url \"a\" \"b\"", "gone true null", "size 1 2"]);
        assert_eq!(changes(json!({"a": 1}), json!({"a": 1})), [""; 0]);
    }

    #[test]
    fn a_value_on_one_side_is_listed_field_by_field() {
        let api =
            json!({"components": {"api": {"version": 1, "depends_on": ["db"], "outputs": {}}}});
        let new_fields =
            ["components.api.depends_on null [\"db\"]", "components.api.outputs null {}"];
        assert_eq!(changes(json!({}), api.clone())[..2], new_fields);
        assert_eq!(changes(api, Value::Null).len(), 3);
    }

    #[test]
    fn lists_of_objects_are_compared_by_index_and_plain_lists_as_one_value() {
        let steps = |state: &str| json!({"steps": [{"state": "a"}, {"state": state}]});
        assert_eq!(changes(steps("b"), steps("c")), ["steps[1].state \"b\" \"c\""]);
        let depends_on = |names: &[&str]| json!({ "depends_on": names });
        assert_eq!(
            changes(depends_on(&["b"]), depends_on(&["a", "b"])),
            ["depends_on [\"b\"] [\"a\",\"b\"]"]
        );
    }

    #[test]
    fn an_ambiguous_key_is_quoted() {
        assert_eq!(changes(json!({"a.b": 1}), json!({"a.b": 2})), ["[\"a.b\"] 1 2"]);
        assert_eq!(changes(json!({"x": {"": 1}}), json!({"x": {"": 2}})), ["x[\"\"] 1 2"]);
    }
}
