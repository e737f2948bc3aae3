use proof::bundle::Base64;
use serde_json::json;

use super::*;

const ULID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn event(position: u64, of: &str, event_type: &str, payload: Value) -> Event {
    let (kind, id) = of.split_once('/').unwrap();
    Event {
        position,
        event_id: format!("evt_{ULID}"),
        aggregate_type: kind.into(),
        aggregate_id: id.into(),
        sequence: 1,
        event_type: event_type.into(),
        version: 1,
        recorded_at_us: 1_000_000,
        content: Content::Open {
            salt: Base64([0; 16]),
            payload: payload.to_string(),
            metadata: json!({"actor": format!("prn_{ULID}"), "command_id": "c"}).to_string(),
        },
        inclusion: vec![],
    }
}

fn install() -> String {
    format!("install/ins_{ULID}")
}

fn run() -> String {
    format!("run/run_{ULID}")
}

/// Bundle of an install, with a run that was denied for an encrypted reason.
fn bundle() -> Bundle {
    let step = format!("stp_{ULID}");
    let digest = format!("sha256:{:064x}", 7);
    let by = format!("prn_{ULID}");
    Bundle {
        format: proof::bundle::FORMAT.into(),
        subject: Subject::Streams(vec![install(), run()]),
        signer: String::new(),
        checkpoint: String::new(),
        since: None,
        annotations: None,
        events: vec![
            event(
                3,
                &install(),
                "install.created",
                json!({
                    "type": "created", "app": format!("app_{ULID}"), "name": "acme", "config_version": 1,
                    "inputs": {}, "auto_approve": false,
                }),
            ),
            event(
                4,
                &install(),
                "install.run_admitted",
                json!({
                    "type": "run_admitted", "run": format!("run_{ULID}"), "kind": "provision",
                }),
            ),
            event(
                5,
                &run(),
                "run.requested",
                json!({
                    "type": "requested", "install": format!("ins_{ULID}"), "kind": "provision", "cause": {"type": "requested"},
                    "by": by, "config_version": 1,
                }),
            ),
            event(
                6,
                &run(),
                "run.denied",
                json!({
                    "type": "denied", "step": step, "digest": digest, "by": by, "reason": "[encrypted]",
                    "encrypted": [{"subjects": ["ins_1"], "paths": ["/reason"], "ciphertext": "AAAA"}],
                }),
            ),
        ],
        others: None,
    }
}

fn annotated(names: Option<&str>, reason: Option<&str>) -> Bundle {
    let names = names.map(|name| [(format!("prn_{ULID}"), name.to_owned())].into());
    let reasons = reason.map(|reason| [(6, reason.to_owned())].into());
    Bundle { annotations: Some(Annotations { names, reasons }), ..bundle() }
}

fn denial(bundle: &Bundle) -> schemas::control::history::Intervention {
    let history = proven_history(bundle).unwrap().unwrap();
    assert_eq!(history.unreadable, [0; 0]);
    assert_eq!(history.runs.len(), 1);
    history.runs[0].interventions[0].clone()
}

#[test]
fn names_and_reasons_are_shown_if_the_bundle_contains_them() {
    let without = denial(&bundle());
    assert_eq!((without.kind.as_str(), without.by), ("denied", format!("prn_{ULID}")));
    assert_eq!((without.by_name, without.reason), (None, None));
    let with = denial(&annotated(Some("Ann Lee"), Some("too large")));
    assert_eq!(
        (with.by_name.as_deref(), with.reason.as_deref()),
        (Some("Ann Lee"), Some("too large"))
    );
}

#[test]
fn pentest_text_of_a_bundle_is_sanitized_for_the_terminal() {
    let unsafe_text = "x\u{1b}[2J\u{202e}y\nrun approved";
    let mut bundle = annotated(Some(unsafe_text), Some(unsafe_text));
    bundle.events[0].content = event(
        3,
        &install(),
        "install.created",
        json!({
            "type": "created", "app": format!("app_{ULID}"), "name": unsafe_text, "config_version": 1,
            "inputs": {unsafe_text: unsafe_text}, "auto_approve": false,
        }),
    )
    .content;
    let history = proven_history(&bundle).unwrap().unwrap();
    let text = serde_json::to_string(&history).unwrap();
    assert!(text.contains("run approved"), "the reason is there");
    for control in ["\\u001b", "\u{202e}", "\\n"] {
        assert!(!text.contains(control), "{control:?} in {text}");
    }
}

#[test]
fn pentest_annotation_does_not_replace_the_log() {
    let mut bundle = annotated(None, Some("forged"));
    let Content::Open { payload, .. } = &mut bundle.events[3].content else { panic!() };
    *payload = payload.replace("[encrypted]", "in clear");
    assert_eq!(denial(&bundle).reason.as_deref(), Some("in clear"));
}

#[test]
fn pentest_missing_stream_of_a_bundle_is_found() {
    let mut bundle = bundle();
    bundle.subject = Subject::Streams(vec![install()]);
    bundle.events.truncate(2);
    let left_out = HistoryError::LeftOut { position: 4, stream: run() };
    assert_eq!(proven_history(&bundle), Err(left_out));
}

#[test]
fn pentest_unreadable_event_is_counted() {
    for payload in ["", "[]", "{\"type\":\"denied\"}", "{\"type\":\"later\",\"reason\":1}"] {
        let mut bundle = annotated(None, Some("x"));
        let Content::Open { payload: text, .. } = &mut bundle.events[3].content else { panic!() };
        *text = payload.into();
        bundle.events[0].recorded_at_us = i64::MAX;
        let history = proven_history(&bundle).unwrap().unwrap();
        assert_eq!(history.unreadable, [3, 6], "{payload}");
    }
}

#[test]
fn unsigned_report_is_found() {
    let mut bundle = bundle();
    let job = format!("job/job_{ULID}");
    bundle.subject = Subject::Streams(vec![install(), job.clone(), run()]);
    bundle.events.push(event(
        7,
        &job,
        "job.succeeded",
        json!({
            "type": "succeeded", "execution": format!("exe_{ULID}"), "seq": 3,
            "signed": {"statement": "{}", "key": "00", "signature": "AA=="},
        }),
    ));
    assert!(matches!(proven_history(&bundle), Err(HistoryError::Forged(_))));
}
