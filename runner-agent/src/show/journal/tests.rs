//! Tests of the journal output. Its golden file is in `schemas/cli-output`.
use std::{fs, path::Path};

use serde_json::{Value, json};

use super::*;

const ULID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn id(prefix: &str) -> String {
    format!("{prefix}_{ULID}")
}

fn other_job() -> JobId {
    "job_01ARZ3NDEKTSV4RRFFQ69G5FAW".parse().unwrap()
}

/// Returns lines with times one second apart.
fn lines(events: Vec<Value>) -> Vec<Line> {
    let line = |(second, mut event): (usize, Value)| {
        event["at"] = json!(format!("2026-11-21T01:02:{second:02}.000000Z"));
        Line { text: event.to_string(), entry: serde_json::from_value(event).unwrap() }
    };
    events.into_iter().enumerate().map(line).collect()
}

/// Returns a journal with every type of entry.
fn journal() -> Vec<Line> {
    let (job, execution) = (id("job"), id("exe"));
    let process = json!({"pid": 4711, "start_time": 1, "boot_id": "b"});
    let digest = format!("sha256:{:064}", 7);
    let root = format!("{}=", "A".repeat(43));
    let note = format!("stead/L\n12\n{root}\nepoch 1\n\n— x AAAA\n");
    let of = |entry: &str, more: Value| {
        let mut event =
            json!({"entry": entry, "job": job, "execution": execution, "claim_id": "c"});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let exited = |exit: Value| of("exited", json!({"exit": exit}));
    let failed = |reason: &str, code: Option<i32>, signal: Option<i32>| {
        let mut exit = json!({"outcome": "failed", "reason": reason});
        code.into_iter().for_each(|code| exit["code"] = json!(code));
        signal.into_iter().for_each(|signal| exit["signal"] = json!(signal));
        exited(exit)
    };
    lines(vec![
        json!({"entry": "opened", "journal_id": ULID}),
        json!({"entry": "chain_started", "journal_id": ULID, "lines": 7, "sha256": digest}),
        json!({"entry": "session_opened", "session": id("ses"), "generation": 3}),
        json!({"entry": "claiming", "job": other_job(), "claim_id": "d"}),
        json!({"entry": "claim_rejected", "job": other_job(), "claim_id": "d",
            "reason": "the server rejected the request: another runner took the job (claimed_by_other)"}),
        of("claiming", json!({})),
        of("claimed", json!({"attempt": 1})),
        json!({"entry": "checkpoint", "note": note}),
        json!({"entry": "checkpoint", "note": "?"}),
        of(
            "verified",
            json!({"manifest": digest, "kind": "apply", "class": "mutating",
            "plugin": "terraform_module", "fence": {"epoch": 1, "position": 4}}),
        ),
        of("approval_requested", json!({})),
        of("approval_decided", json!({"approved": true, "reason": "looks right"})),
        of("approval_decided", json!({"approved": false, "reason": "not on a Friday"})),
        of(
            "refused",
            json!({"refused_by": "customer_policy", "rule": "kinds",
            "detail": "a \u{1b}[31mstranger's\n word"}),
        ),
        of(
            "refused",
            json!({"refused_by": "verification", "rule": "grant_signature", "detail": "no"}),
        ),
        of("refused", json!({"refused_by": "capability", "rule": "quarantine", "detail": "no"})),
        of("refused", json!({"refused_by": "veto", "rule": "veto_command", "detail": "no"})),
        of("spawning", json!({})),
        of("spawned", json!({"process": process})),
        of("child_started", json!({"process": process})),
        of("cancelling", json!({"reason": "enough", "force": false})),
        of("cancelling", json!({"reason": "enough", "force": true})),
        exited(json!({"outcome": "succeeded", "code": 0})),
        exited(json!({"outcome": "cancelled"})),
        failed("exit_code", Some(1), None),
        failed("signal", None, Some(9)),
        failed("timed_out", None, Some(15)),
        failed("plan_stale", None, None),
        of("statement_signed", json!({"outcome": "failed", "statement": digest})),
        of("statement_rejected", json!({"reason": "outputs are not those that were reported"})),
        of("reported", json!({})),
        of("log_rejected", json!({"rule": "log_forked", "evidence": "log_forked-4f.json"})),
        of("log_rejected", json!({"rule": "log_forked", "evidence": ""})),
        of("abandoned", json!({"reason": "the server recorded an unknown outcome"})),
        of("claimed", json!({"attempt": 2})),
        json!({"entry": "epoch_accepted", "epoch": 2}),
        json!({"entry": "rekeyed", "identity_key": "00".repeat(32)}),
        json!({"entry": "disabled", "reason": "change freeze"}),
        json!({"entry": "enabled"}),
        json!({"entry": "danced", "with": "you"}),
    ])
}

#[test]
fn a_journal_is_shown_as_a_table() {
    let text = table(&of(journal(), None, None));
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/cli-output/runner-journal.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "{}", path.display());
}

#[test]
fn the_entries_of_one_job_are_shown() {
    let entries = of(journal(), Some(id("job").parse().unwrap()), None);
    let entries: Vec<_> = entries
        .iter()
        .map(|entry| {
            let line: Value = serde_json::from_str(&entry.line.text).unwrap();
            line["entry"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(entries[..4], ["claiming", "claimed", "verified", "approval_requested"]);
    assert!(
        entries.contains(&"child_started".to_owned())
            && entries.contains(&"approval_decided".to_owned())
    );
    assert!(!entries.contains(&"checkpoint".to_owned()));
    assert_eq!(of(journal(), Some(other_job()), None).len(), 2);
    // `last` counts the entries of the job only.
    let last = of(journal(), Some(other_job()), Some(1));
    assert!(table(&last).contains("claim rejected"));
    assert_eq!(of(journal(), None, Some(3)).len(), 3);
}

#[test]
fn a_line_of_a_later_version_is_shown_unchanged() {
    let entries = of(journal(), None, Some(1));
    let line = r#"{"at":"2026-11-21T01:02:39.000000Z","entry":"danced","with":"you"}"#;
    assert_eq!(entries[0].line.text, line);
}
