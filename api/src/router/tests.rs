//! Routes of each listener, compared with golden files.
use std::{collections::BTreeSet, fmt::Write as _};

use domain::testing::golden;
use serde_json::Value;

use super::*;
use crate::auth::roles::{ROUTES, find_route};

/// Method and path of every operation in a document.
pub(super) fn operations(document: &OpenApi) -> Vec<(String, String)> {
    let document = serde_json::to_value(document).unwrap();
    let paths = document["paths"].as_object().cloned().unwrap_or_default();
    let operations = paths.iter().flat_map(|(path, operations)| {
        let operations = operations.as_object().cloned().unwrap_or_default();
        let verbs =
            operations.into_iter().filter(|(_, operation)| operation.get("responses").is_some());
        verbs.map(|(verb, _)| (path.clone(), verb.to_uppercase())).collect::<Vec<_>>()
    });
    let mut operations: Vec<_> = operations.collect();
    operations.sort();
    operations.into_iter().map(|(path, verb)| (verb, path)).collect()
}

#[test]
fn every_control_route_has_a_required_role() {
    let (_, document) = control_api();
    let (mut table, mut forgotten) = (String::new(), vec![]);
    let operations = operations(&document);
    for (verb, path) in &operations {
        match find_route(verb, path) {
            Some(needs) => writeln!(table, "{needs:<9}{verb:<7}{path}").unwrap(),
            None => forgotten.push(format!("{verb} {path}")),
        }
    }
    assert_eq!(forgotten, [""; 0], "add these to api/src/auth/roles.rs");
    let known: BTreeSet<_> = operations.iter().map(|(v, p)| (v.as_str(), p.as_str())).collect();
    let obsolete: Vec<_> = ROUTES.iter().filter(|(v, p, _)| !known.contains(&(*v, *p))).collect();
    assert!(obsolete.is_empty(), "api/src/auth/roles.rs lists what does not exist: {obsolete:?}");
    golden("routes/control.txt", &table);
}

#[test]
fn openapi_documents_match_the_golden_files() {
    for (name, document) in [("control", control_api().1), ("runner", runner_api().1)] {
        let document: Value = serde_json::to_value(&document).unwrap();
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
        let text = serde_json::to_string_pretty(&sorted(document)).unwrap() + "\n";
        golden(&format!("openapi/{name}.json"), &text);
    }
}

/// Sorts members, because features of other crates can change their order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.into_iter().collect();
            members.sort_by(|one, other| one.0.cmp(&other.0));
            members.into_iter().map(|(key, value)| (key, sorted(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}
