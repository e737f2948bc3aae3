//! Errors of an API server, from its source code. The test cluster cannot return all of them.

use serde_json::json;

use super::*;

fn object(api_version: &str, kind: &str) -> ObjectRef {
    ObjectRef {
        api_version: api_version.into(),
        kind: kind.into(),
        namespace: Some("shop".into()),
        name: "db".into(),
    }
}

fn status(code: u16, message: &str, causes: &[(&str, &str)]) -> Status {
    let causes: Vec<Value> = causes
        .iter()
        .map(|(field, message)| json!({ "reason": "R", "field": field, "message": message }))
        .collect();
    serde_json::from_value(json!({ "code": code, "message": message, "reason": "R",
                                   "details": { "causes": causes } }))
    .unwrap()
}

fn failure(reference: &ObjectRef, status: Status) -> String {
    apply_failure(reference, RequestError::Status(Box::new(status))).message
}

#[test]
fn messages_of_invalid_objects_have_no_values() {
    for (message, expected) in [
        ("Invalid value: \"pa\\\"ss: word\": must be short", "Invalid value: must be short"),
        ("Invalid value: 0: must be greater", "Invalid value: must be greater"),
        (
            "Invalid value: core.Pod{A: \"x\"}: field is immutable",
            "Invalid value: field is immutable",
        ),
        (
            "Unsupported value: \"secret\": supported values: \"a\"",
            "Unsupported value: supported values: \"a\"",
        ),
        ("Required value", "Required value"),
    ] {
        assert_eq!(without_value(message), expected);
    }
}

#[test]
fn rejection_of_a_secret_does_not_quote_it() {
    let secret = object("v1", "Secret");
    for (code, message) in [
        (400, "illegal base64 data, error found near |hunter2|"),
        (403, "admission webhook \"policy\" denied the request: hunter2 is too weak"),
        (409, "hunter2"),
        (422, "Secret is invalid: hunter2"),
        (
            500,
            "failed to create typed patch object (shop/db): .data.pin: expected string, got \
               &value.valueUnstructured{Value:hunter2}",
        ),
        (503, "hunter2"),
    ] {
        let message = failure(&secret, status(code, message, &[]));
        assert!(!message.contains("hunter2") && message.contains(&code.to_string()), "{message}");
    }
    let cause = [("data[a]", "Invalid value: hunter2")];
    let message = failure(&secret, status(422, "hunter2", &cause));
    assert_eq!(message, "Secret shop/db is invalid: data[a]: R");
    // RBAC quotes only names.
    let denied = "secrets \"db\" is forbidden: User \"u\" cannot patch resource \"secrets\"";
    assert!(failure(&secret, status(403, denied, &[])).contains("cannot patch resource"));
    let other = object("v1", "ConfigMap");
    assert!(failure(&other, status(400, "illegal base64 data", &[])).contains("illegal base64"));
}

#[test]
fn error_about_a_type_has_no_value() {
    let text = "failed to create typed patch object (shop/web): errors:\n  .spec.env: expected \
                string, got &value.valueUnstructured{Value:31337}\n  .spec.pin: expected string, \
                got &value.valueUnstructured{Value:424242}";
    let message = failure(&object("apps/v1", "Deployment"), status(500, text, &[]));
    assert!(message.contains(".spec.env: expected string"), "{message}");
    assert!(!message.contains("31337") && !message.contains("424242"), "{message}");
}

#[test]
fn only_immutable_fields_of_built_in_kinds_replace_an_object() {
    let job = object("batch/v1", "Job");
    let fields = |reference: &ObjectRef, causes: &[(&str, &str)]| {
        immutable_fields(reference, &status(422, "m", causes))
    };
    let immutable = ("spec.template", "Invalid value: {}: field is immutable");
    assert_eq!(fields(&job, &[immutable]), Some(vec!["spec.template".to_owned()]));
    for message in [
        "Forbidden: updates to parameters are forbidden.",
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`",
        "Forbidden: may not be changed in an update.",
        "Invalid value: {}: cannot change roleRef",
    ] {
        assert!(fields(&job, &[("spec", message)]).is_some(), "{message}");
    }
    // A rule of a custom resource, even with the same words, and a rule of a policy.
    let database = object("postgresql.example.dev/v1", "Cluster");
    assert_eq!(fields(&database, &[immutable]), None);
    assert_eq!(fields(&database, &[("spec.size", "Invalid value: 1: must not shrink")]), None);
    assert_eq!(fields(&job, &[("", "the policy denied the request: is immutable")]), None);
    assert_eq!(fields(&job, &[immutable, ("spec.x", "Required value")]), None);
    assert_eq!(fields(&job, &[]), None);
}

#[test]
fn webhook_of_the_component_is_told_from_that_of_the_cluster() {
    let text = "Internal error occurred: failed calling webhook \"check.example.dev\": Post \
                \"https://hooks.shop.svc:443/check?timeout=10s\": service \"hooks\" not found";
    let webhook = absent_webhook(&status(500, text, &[])).unwrap();
    assert_eq!(webhook.name, "check.example.dev");
    assert!(!OwnWebhooks::default().contain(&webhook));
    let service = ObjectRef { name: "hooks".into(), ..object("v1", "Service") };
    let other = ObjectRef { namespace: Some("other".into()), ..service.clone() };
    let none = Value::Null;
    assert!(OwnWebhooks::of([(&service, &none)].into_iter()).contain(&webhook));
    assert!(!OwnWebhooks::of([(&other, &none)].into_iter()).contain(&webhook));
    let configuration = object("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration");
    let webhooks = json!({ "webhooks": [{ "name": "check.example.dev" }] });
    assert!(OwnWebhooks::of([(&configuration, &webhooks)].into_iter()).contain(&webhook));
    assert_eq!(absent_webhook(&status(500, "etcdserver: leader changed", &[])), None);
}
