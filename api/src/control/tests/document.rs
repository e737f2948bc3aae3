//! Properties of every operation in the OpenAPI document. The document itself is a golden file of
//! the router's tests.
use std::collections::BTreeSet;

use serde_json::Value;

use crate::router;

#[test]
fn every_operation_has_a_summary_a_tag_a_problem_and_a_unique_id() {
    let (_, document) = router::control_api();
    let document = serde_json::to_value(&document).unwrap();
    let mut names = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let has = |key: &str| !operation[key].is_null();
            assert!(has("summary") && has("tags"), "{method} {path}: {operation}");
            assert_ne!(operation["responses"]["default"], Value::Null, "{method} {path}");
            let name = operation["operationId"].as_str().unwrap().to_owned();
            assert!(names.insert(name), "{method} {path}: {operation}");
        }
    }
}
