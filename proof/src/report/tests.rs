use std::{fs, path::Path};

use ed25519_dalek::SigningKey;
use serde_json::{Value, json};

use super::*;
use crate::{canonical, digest_text, dsse, plan};

const RUNNER: &str = "rnr_1";

fn key(of: u8) -> SigningKey {
    SigningKey::from_bytes(&[of; 32])
}

fn public(of: u8) -> String {
    hex::encode(key(of).verifying_key().as_bytes())
}

fn digest(of: u8) -> String {
    digest_text(&[of; 32])
}

fn statement() -> Value {
    json!({"version": 1, "runner": RUNNER, "job": "job_1", "execution": "exe_1", "outcome": "failed",
        "reason": "exit_code", "exit_code": 1, "manifest": digest(1), "outputs": outputs_digest(),
        "log": {"length_bytes": 7, "sha256": digest(2), "omitted_bytes": 0}})
}

fn outputs_digest() -> String {
    digest_text(&canonical::hash(&json!({"bucket": "b", "size": 1.5})).unwrap())
}

fn signed(statement: &Value, by: u8) -> Value {
    let text = String::from_utf8(canonical::json(statement).unwrap()).unwrap();
    let envelope = dsse::sign(STATEMENT, text.as_bytes(), &key(by));
    json!({"statement": text, "key": public(by), "signature": envelope.signatures[0].sig})
}

fn end(statement: &Value, by: u8) -> Value {
    json!({"type": "failed", "execution": "exe_1", "seq": 4, "reason": "exit_code", "detail": "[encrypted]",
        "exit_code": 1, "signed": signed(statement, by)})
}

fn planned(job: &str, by: u8) -> Value {
    let (file, summary) = ([3; 32], [4; 32]);
    let of = plan::digest_of(&file, &summary, &[1; 32], "terraform 1.9.8");
    let signature = plan::sign(&plan::statement(&of, job, "exe_1"), &key(by));
    json!({"type": "plan_produced", "execution": "exe_1", "seq": 2, "plan": {"digest": digest_text(&of),
        "file": digest(3), "summary": digest(4), "noop": false, "add": 1, "change": 0, "destroy": 0,
        "tool": "terraform 1.9.8", "signature": signature}})
}

type Events = Vec<(&'static str, Value)>;

/// Log of a job that failed after the runner changed its key. The runner signed the result.
fn log() -> Events {
    vec![
        ("runner.enrolled", json!({"type": "enrolled", "identity_key": public(1)})),
        ("job.queued", json!({"type": "queued", "manifest": digest(1)})),
        ("job.claimed", json!({"type": "claimed", "execution": "exe_1", "runner": RUNNER})),
        ("job.plan_produced", planned("job_1", 1)),
        ("runner.rekeyed", json!({"type": "rekeyed", "identity_key": public(2)})),
        ("job.outputs_reported", json!({"execution": "exe_1", "outputs": {"size": 1.5}})),
        ("job.outputs_reported", json!({"execution": "exe_1", "outputs": {"bucket": "b"}})),
        ("job.failed", end(&statement(), 2)),
        (
            "job.log_finalized",
            json!({"execution": "exe_1", "length_bytes": 7, "sha256": digest(2), "omitted_bytes": 0,
                "complete": true}),
        ),
    ]
}

fn verify(whole: bool, events: &Events) -> (Vec<ReportError>, ReportCounts) {
    let (mut reports, mut errors) = (Reports::new(whole), vec![]);
    for (position, (event_type, payload)) in (1..).zip(events) {
        let kind = event_type.split('.').next().unwrap();
        let of = if kind == "job" { "job_1" } else { RUNNER };
        let payload = serde_json::to_vec(payload).unwrap();
        let Some(event) = ReportEvent::read((kind, of), event_type, &payload) else { continue };
        let signature = reports.take(position, event);
        errors.extend(signature.and_then(|found| found.map_or(Ok(()), |one| one.check())).err());
    }
    (errors, reports.tally())
}

#[test]
fn reports_are_valid_under_the_runner_key_at_their_position() {
    assert_eq!(
        verify(true, &log()),
        (vec![], ReportCounts { signed: 2, ..ReportCounts::default() })
    );
    // Encrypted or erased outputs have no digest to compare.
    for unknown in ["[encrypted]", "[erased]"] {
        let mut log = log();
        log[6].1["outputs"]["bucket"] = json!(unknown);
        assert_eq!(verify(true, &log).0, []);
    }
    // The server sets a reason that the runner left out.
    let mut without_reason = statement();
    without_reason.as_object_mut().unwrap().remove("reason");
    let mut log = log();
    log[7].1 = end(&without_reason, 2);
    assert_eq!(verify(true, &log).0, []);
}

#[test]
fn changed_and_forged_reports_are_detected() {
    let wrong = |change: &dyn Fn(&mut Events), position: u64, why: &str| {
        let mut log = log();
        change(&mut log);
        let (errors, _) = verify(true, &log);
        assert_eq!(errors.len(), 1, "{why}: {errors:?}");
        assert_eq!(errors[0].position, position, "{errors:?}");
        assert!(errors[0].what.contains(why), "{errors:?}");
    };
    let other = |change: &dyn Fn(&mut Value)| {
        let mut statement = statement();
        change(&mut statement);
        statement
    };
    let at = 8;
    wrong(&|log| log[7].1["exit_code"] = json!(0), at, "records failed (exit_code), exit code 0");
    wrong(
        &|log| log[7].1["reason"] = json!("timed_out"),
        at,
        "the runner signed failed (exit_code)",
    );
    wrong(&|log| log[7].0 = "job.cancelled", at, "records cancelled");
    wrong(&|log| log[7].1["execution"] = json!("exe_2"), at, "no runner claimed exe_2");
    wrong(&|log| log[7].1["signed"] = json!({}), at, "cannot read");
    // Changes the statement but keeps the old signature.
    let forged = |log: &mut Events| {
        log[7].1["exit_code"] = json!(3);
        let changed = other(&|statement| statement["exit_code"] = json!(3));
        log[7].1["signed"]["statement"] = json!(serde_json::to_string(&changed).unwrap());
    };
    wrong(&forged, at, "its signature does not match");
    wrong(&|log| log[7].1 = end(&statement(), 3), at, "not the runner's at this position");
    wrong(&|log| log[7].1 = end(&statement(), 1), at, "not the runner's at this position");
    for (member, other_one) in [("job", "job_2"), ("execution", "exe_2"), ("runner", "rnr_2")] {
        let changed = other(&|statement| statement[member] = json!(other_one));
        wrong(&|log| log[7].1 = end(&changed, 2), at, "to another runner, job or execution");
    }
    let ran = other(&|statement| statement["manifest"] = json!(digest(9)));
    wrong(&|log| log[7].1 = end(&ran, 2), at, "did not sign the manifest of the job");
    wrong(&|log| log[6].1["outputs"]["bucket"] = json!("c"), at, "the reported outputs");
    wrong(&|log| log[8].1["sha256"] = json!(digest(9)), 9, "the stored log differs");
    // A plan with another tool, with another digest, with the signature of another job, and with
    // another key.
    wrong(&|log| log[3].1["plan"]["tool"] = json!("tofu"), 4, "the digest of the plan");
    wrong(&|log| log[3].1["plan"]["digest"] = json!(digest(9)), 4, "the digest of the plan");
    wrong(&|log| log[3].1 = planned("job_2", 1), 4, "its signature does not match");
    wrong(&|log| log[3].1 = planned("job_1", 2), 4, "its signature does not match");
}

#[test]
fn unsigned_results_are_counted_and_jobs_claimed_before_a_part_are_skipped() {
    let mut log = log();
    log[7].1.as_object_mut().unwrap().remove("signed");
    let unsigned = ReportCounts { signed: 1, unsigned: 1, first_unsigned: Some(8) };
    assert_eq!(verify(true, &log), (vec![], unsigned));
    let mut late = end(&statement(), 2);
    late["outcome"] = json!("failed");
    log[7] = ("job.late_result_reported", late);
    assert_eq!(verify(true, &log).0, []);
    let tail = log.split_off(3);
    assert_eq!(verify(false, &tail), (vec![], ReportCounts::default()));
    assert_eq!(verify(true, &tail).0.len(), 2);
}

#[test]
fn a_job_queued_before_the_verified_part_is_not_a_forgery() {
    // Given a part of the log that begins after `job.queued`. A runner enrols, claims and reports
    // in this part.
    let mut log = log();
    log.remove(1);
    // Then the verifier checks the result without the manifest, and skips the plan.
    assert_eq!(
        verify(false, &log),
        (vec![], ReportCounts { signed: 1, ..ReportCounts::default() })
    );
    assert_eq!(verify(true, &log).0.len(), 2);
    // And the verifier also detects a false statement that needs no manifest in this part.
    log[6].1["exit_code"] = json!(0);
    assert_eq!(verify(false, &log).0.len(), 1);
}

/// Log of a job whose result directly follows its resolution.
fn resolved(resolution: &str) -> Events {
    let mut log = log();
    log.truncate(7);
    let decision =
        json!({"execution": "exe_1", "by": "prn_1", "resolution": resolution, "reason": "seen"});
    log.push(("job.outcome_resolved", decision));
    log.push(("job.succeeded", json!({"type": "succeeded", "execution": "exe_1"})));
    log
}

#[test]
fn a_result_without_a_report_or_resolution_is_detected() {
    let valid = (vec![], ReportCounts { signed: 1, ..ReportCounts::default() });
    assert_eq!(verify(true, &resolved("succeeded")), valid);
    let errors = |whole: bool, log: &Events| {
        let (errors, tally) = verify(whole, log);
        assert_eq!(tally.unsigned, 0);
        errors.into_iter().map(|error| (error.position, error.what)).collect::<Vec<_>>()
    };
    let wrong =
        |at: u64| vec![(at, "the result has neither a runner report nor a resolution".to_owned())];
    // Cases: no resolution, in the whole log and in a part; another resolution; a resolution of
    // another execution; another event after the resolution.
    let mut none = resolved("succeeded");
    none.remove(7);
    assert_eq!((errors(true, &none), errors(false, &none)), (wrong(8), wrong(8)));
    assert_eq!(errors(true, &resolved("failed")), wrong(9));
    let mut other = resolved("succeeded");
    other[7].1["execution"] = json!("exe_2");
    assert_eq!(errors(true, &other), wrong(9));
    let mut later = resolved("succeeded");
    later.insert(8, ("job.log_diverged", json!({"execution": "exe_1", "offset_bytes": 1})));
    assert_eq!(errors(true, &later), wrong(10));
    // A result without an execution is wrong while a runner has the job.
    let mut unnamed = none.clone();
    unnamed[7] = ("job.cancelled", json!({"type": "cancelled", "forced": false}));
    assert_eq!(errors(true, &unnamed), wrong(8));
    unnamed.insert(7, ("job.requeued", json!({"execution": "exe_1", "attempt": 2})));
    assert!(errors(true, &unnamed).is_empty());
    unnamed[8] = ("job.succeeded", json!({"type": "succeeded"}));
    assert_eq!(errors(true, &unnamed), wrong(9));
    // A part of the log that begins after the resolution does not contain the resolution.
    assert!(errors(false, &resolved("succeeded").split_off(8)).is_empty());
}

#[test]
fn a_report_signed_with_a_revoked_key_is_detected() {
    let revoked = || ("runner.revoked", json!({"type": "revoked", "reason": "stolen"}));
    let errors = |whole: bool, log: &Events| {
        let errors = verify(whole, log).0.into_iter();
        errors.map(|error| (error.position, error.what)).collect::<Vec<_>>()
    };
    let why = |at: u64| {
        format!(
            "forged report in the name of runner {RUNNER}: its key was revoked at position {at}"
        )
    };
    let mut log = log();
    log.insert(7, revoked());
    assert_eq!(errors(true, &log), [(9, why(8))]);
    // A part of the log with the claim but without the key also shows the revocation. Signatures
    // before the revocation stay valid.
    log.drain(..2);
    assert_eq!(errors(false, &log), [(7, why(6))]);
    // A later key does not end the revocation.
    let mut log = super::tests::log();
    log.insert(3, revoked());
    assert_eq!(errors(true, &log), [(5, why(4)), (9, why(4))]);
}

/// The verifier must parse every version of these events. Otherwise it rejects reports of a new
/// version as forged.
#[test]
fn every_example_event_of_a_report_is_parsed() {
    let of_runner = ["enrolled", "rekeyed", "revoked"].map(|event| ("runner", event));
    let of_job = [
        "queued",
        "claimed",
        "requeued",
        "lost",
        "outcome_resolved",
        "outputs_reported",
        "plan_produced",
        "succeeded",
        "failed",
        "cancelled",
        "late_result_reported",
        "log_finalized",
    ];
    for (kind, event) in of_runner.into_iter().chain(of_job.map(|event| ("job", event))) {
        let event_type = format!("{kind}.{event}");
        let directory =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/events").join(&event_type);
        let files = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path());
        let examples: Vec<_> =
            files.filter(|file| file.to_string_lossy().ends_with(".example.json")).collect();
        assert!(!examples.is_empty(), "{}", directory.display());
        for example in examples {
            let event = ReportEvent::read((kind, "it"), &event_type, &fs::read(&example).unwrap());
            let is_read = event.is_some_and(|event| !matches!(event.kind, Kind::Unreadable(_)));
            assert!(is_read, "{}", example.display());
        }
    }
}

#[test]
fn a_plan_of_version_2_is_verified_with_all_its_parts() {
    let events = |change: fn(&mut Value)| {
        let (file, summary) = ([3; 32], [4; 32]);
        let parts = plan::PartsV2 { details: Some([5; 32]), plugin: None, tool: Some([6; 32]) };
        let of = plan::digest_v2(&file, &summary, &[1; 32], "terraform 1.9.8", &parts);
        let signature = plan::sign(&plan::statement(&of, "job_1", "exe_1"), &key(1));
        let mut planned = planned("job_1", 1);
        planned["plan"]["digest"] = json!(digest_text(&of));
        planned["plan"]["signature"] = json!(signature);
        planned["plan"]["v2"] = json!({"details": digest(5), "tool": digest(6)});
        change(&mut planned["plan"]);
        let mut events = log();
        events[3].1 = planned;
        events
    };
    assert_eq!(verify(true, &events(|_| ())).0, []);
    let changes: [fn(&mut Value); 4] = [
        |plan| plan["v2"]["details"] = json!(digest(7)),
        |plan| plan["v2"]["plugin"] = json!(digest(5)),
        |plan| drop(plan["v2"].as_object_mut().unwrap().remove("tool")),
        |plan| drop(plan.as_object_mut().unwrap().remove("v2")),
    ];
    for change in changes {
        let (errors, _) = verify(true, &events(change));
        assert_eq!((errors.len(), errors[0].position), (1, 4), "{errors:?}");
        assert!(errors[0].what.contains("does not match its parts"), "{errors:?}");
    }
}
