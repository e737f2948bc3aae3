use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

use super::*;
use crate::testing::golden;

/// Returns schema and example of every event type from `schemas/events`.
fn stored_events() -> BTreeMap<String, (Value, Value)> {
    let events = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/events");
    let read = |path: &Path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let stored = std::fs::read_dir(events).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let (schema, example) = ("1.schema.json", "1.example.json");
        let both = (read(&entry.path().join(schema)), read(&entry.path().join(example)));
        (entry.file_name().into_string().unwrap(), both)
    });
    stored.collect()
}

/// Collects the paths of free-text fields: strings without a pattern, format or fixed values, and
/// values of any type.
fn collect_free_text(schema: &Value, path: &str, paths: &mut Vec<String>) {
    let has = |key: &str| schema.get(key).is_some();
    let any = !["type", "const", "enum", "oneOf", "anyOf", "allOf"].into_iter().any(has);
    let is_limited = ["pattern", "const", "enum", "format"].into_iter().any(has);
    if any || (schema["type"] == "string" && !is_limited) {
        paths.push(path.to_owned());
    }
    for of in ["oneOf", "anyOf", "allOf"] {
        let parts = schema.get(of).and_then(Value::as_array).into_iter().flatten();
        parts.for_each(|part| collect_free_text(part, path, paths));
    }
    let named = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    named.for_each(|(name, part)| collect_free_text(part, &format!("{path}/{name}"), paths));
    for all in ["additionalProperties", "items"] {
        if let Some(part) = schema.get(all).filter(|part| **part != Value::Bool(false)) {
            collect_free_text(part, &format!("{path}/*"), paths);
        }
    }
}

fn path_text(field: &PersonalField) -> String {
    format!("/{}", field.path.join("/"))
}

/// Compares the free-text fields and their owners with `schemas/erasure.txt`.
#[test]
fn every_free_text_field_has_a_known_owner() {
    let mut text =
        "Free-text fields of events, and the subjects whose keys encrypt each.\n\n".to_string();
    for (event, (schema, _)) in stored_events() {
        let mut paths = vec![];
        collect_free_text(&schema, "", &mut paths);
        paths.sort();
        paths.dedup();
        for field in personal_fields(&event) {
            assert!(
                paths.contains(&path_text(field)),
                "{event} has no free-text field at {}",
                path_text(field)
            );
        }
        for path in paths {
            let field = personal_fields(&event).iter().find(|field| path_text(field) == path);
            let owner = match field.map(|field| field.owner) {
                Some(FieldOwner::Customer) => "customer",
                Some(FieldOwner::Author) => "author and customer",
                None => "not encrypted",
            };
            text += &format!("{event:<32} {path:<26} {owner}\n");
        }
    }
    golden("erasure.txt", &text);
}

#[test]
fn an_erased_event_deserializes() {
    use crate::{decider::Decider, upcast};
    fn read<D: Decider>(event: &str, payload: &str) {
        upcast::read::<D::Event>(event, "1", payload).unwrap();
    }
    fn erase(value: &mut Value, path: &[&str]) {
        match (path, value) {
            ([], value) => *value = ERASED.into(),
            (["*", rest @ ..], Value::Object(all)) => {
                all.values_mut().for_each(|value| erase(value, rest));
            }
            (["*", rest @ ..], Value::Array(all)) => {
                all.iter_mut().for_each(|value| erase(value, rest));
            }
            ([key, rest @ ..], Value::Object(all)) => {
                all.get_mut(*key).into_iter().for_each(|value| erase(value, rest));
            }
            (_, other) => panic!("{other} is not an object"),
        }
    }
    let mut erased = 0;
    for (event, (_, mut example)) in stored_events() {
        personal_fields(&event).iter().for_each(|field| erase(&mut example, field.path));
        let payload = example.to_string();
        erased += payload.matches(ERASED).count();
        match event.split_once('.').unwrap().0 {
            "install" => read::<crate::install::Install>(&event, &payload),
            "run" => read::<crate::run::Run>(&event, &payload),
            "job" => read::<crate::job::Job>(&event, &payload),
            "runner" => read::<crate::runner::Runner>(&event, &payload),
            "enrolment" => read::<crate::enrolment::Enrolment>(&event, &payload),
            "subject" => read::<crate::subject::Subject>(&event, &payload),
            other => assert!(
                personal_fields(&event).is_empty(),
                "{other} has personal data fields: deserialize its events here"
            ),
        }
    }
    assert!(erased >= 25, "only {erased} fields were erased in the examples");
}

/// A stored payload has its ciphertext in the member `encrypted`, so no event may have a field with
/// this name.
#[test]
fn no_event_has_a_field_named_encrypted() {
    for (event, (schema, _)) in stored_events() {
        assert!(schema["properties"].get("encrypted").is_none(), "{event}");
    }
}
