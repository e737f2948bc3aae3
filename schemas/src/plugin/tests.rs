use serde_json::json;

use super::*;

fn context() -> CallContext {
    CallContext {
        component: "web".into(),
        operation: Operation::Apply,
        inputs: Some(json!({ "vars": {} })),
        inputs_file: None,
        source_dir: "/job/source".into(),
        state_dir: "/state/web".into(),
        work_dir: "/job".into(),
    }
}

fn same_both_ways<T>(value: T, text: &Value)
where
    T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    assert_eq!(serde_json::to_value(&value).unwrap(), *text);
    assert_eq!(serde_json::from_value::<T>(text.clone()).unwrap(), value);
}

#[test]
fn both_sides_use_the_highest_common_version() {
    for (offered, all, own, expected) in [
        (1, &[][..], &[1][..], Some(1)),
        (1, &[], &[1, 2], Some(1)),
        (1, &[1, 2], &[1], Some(1)),
        (1, &[1, 2], &[1, 2], Some(2)),
        (1, &[1, 2, 3], &[1, 2], Some(2)),
        (3, &[], &[1, 2], None),
    ] {
        assert_eq!(highest_common(offered, all, own), expected, "{offered} {all:?} {own:?}");
    }
}

#[test]
fn a_call_has_one_form_in_both_directions() {
    let about = json!({
        "component": "web", "operation": "apply", "inputs": { "vars": {} },
        "source_dir": "/job/source", "state_dir": "/state/web", "work_dir": "/job",
    });
    let with = |name: &str, further: Value| {
        let mut call = about.clone();
        call["id"] = json!(3);
        call["call"] = json!(name);
        call.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        call
    };
    let state = StateMark { lineage: Some("a".into()), serial: 4 };
    let file = || PathBuf::from("/job/plan");
    for (call, text) in [
        (
            Call::Describe { protocol: 1, protocols: vec![1, 2] },
            json!({ "id": 3, "call": "describe", "protocol": 1, "protocols": [1, 2] }),
        ),
        (Call::Health(context()), with("health", json!({}))),
        (Call::Preflight(context()), with("preflight", json!({}))),
        (Call::Build(context()), with("build", json!({}))),
        (Call::State(context()), with("state", json!({}))),
        (
            Call::Plan { context: context(), plan_file: file() },
            with("plan", json!({ "plan_file": "/job/plan" })),
        ),
        (
            Call::Apply { context: context(), plan_file: file(), state: state.clone() },
            with(
                "apply",
                json!({ "plan_file": "/job/plan", "state": { "lineage": "a", "serial": 4 } }),
            ),
        ),
        (
            Call::Destroy { context: context(), plan_file: file(), state },
            with(
                "destroy",
                json!({ "plan_file": "/job/plan", "state": { "lineage": "a", "serial": 4 } }),
            ),
        ),
        (Call::Outputs(context()), with("outputs", json!({}))),
        (Call::Cancel { of: 2 }, json!({ "id": 3, "call": "cancel", "of": 2 })),
    ] {
        assert_eq!(text["call"], json!(call.name()));
        same_both_ways(Request { id: 3, call }, &text);
    }
}

#[test]
fn large_inputs_are_a_file() {
    let inputs_file = Some(FileRef::of("/job/inputs.json".into(), b"{}"));
    let request = Request {
        id: 2,
        call: Call::Health(CallContext { inputs: None, inputs_file, ..context() }),
    };
    let text = serde_json::to_value(&request).unwrap();
    assert_eq!(text.get("inputs"), None);
    assert_eq!(
        text["inputs_file"],
        json!({
            "path": "/job/inputs.json",
            "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
            "size_bytes": 2,
        })
    );
}

#[test]
fn a_file_matches_its_reference() {
    let file = FileRef::of("/job/value".into(), br#"{"noop":true}"#);
    assert_eq!(file.parse::<Value>(br#"{"noop":true}"#).unwrap(), json!({ "noop": true }));
    let other = file.parse::<Value>(br#"{"noop":fals}"#).unwrap_err();
    assert!(matches!(other, FileError::Digest { .. }), "{other}");
    let shorter = file.parse::<Value>(b"{}").unwrap_err();
    assert_eq!(shorter.to_string(), "it has 2 bytes, but the message requires 13");
    let no_json = FileRef::of("/job/value".into(), b"x").parse::<Value>(b"x").unwrap_err();
    assert!(matches!(no_json, FileError::Json(_)), "{no_json}");
}

#[test]
fn a_message_has_one_form_in_both_directions() {
    let file = FileRef::of("/job/value".into(), b"{}");
    for (message, text) in [
        (
            Message::Result { id: 2, value: json!({ "a": 1 }), value_file: None },
            json!({ "type": "result", "id": 2, "value": { "a": 1 } }),
        ),
        (
            Message::Result { id: 2, value: Value::Null, value_file: Some(file.clone()) },
            json!({ "type": "result", "id": 2, "value": null, "value_file": file }),
        ),
        (
            Message::Error { id: 2, code: ErrorCode::Unsupported, message: "no".into() },
            json!({ "type": "error", "id": 2, "code": "unsupported", "message": "no" }),
        ),
        (Message::Log { line: "a".into() }, json!({ "type": "log", "line": "a" })),
        (Message::Progress { phase: "a".into() }, json!({ "type": "progress", "phase": "a" })),
    ] {
        same_both_ways(message, &text);
    }
}

#[test]
fn a_call_of_a_later_version_is_unknown() {
    let text = r#"{"id":7,"call":"logs","component":"web","since":"now"}"#;
    let request: Request = serde_json::from_str(text).unwrap();
    assert_eq!(request, Request { id: 7, call: Call::Unknown });
}

#[test]
fn a_preflight_lists_its_checks() {
    let checks = vec![PreflightCheck {
        check: "cluster".into(),
        status: CheckStatus::Deferred,
        message: "the sandbox creates it".into(),
    }];
    same_both_ways(
        Preflight { checks },
        &json!({ "checks": [
            { "check": "cluster", "status": "deferred", "message": "the sandbox creates it" },
        ] }),
    );
}
