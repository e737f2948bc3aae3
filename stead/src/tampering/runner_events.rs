//! Events of a runner and its jobs, with reports that its key signs.
use domain::actor::Actor;
use ed25519_dalek::SigningKey;
use event_log::{Commit, Meta, NewEvent, StreamId, Write};
use proof::dsse;
use schemas::runner::STATEMENT_TYPE;
use serde_json::{Value, json};

const RUNNER: &str = "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV";

pub(super) fn key() -> SigningKey {
    SigningKey::from_bytes(&[8; 32])
}

fn manifest() -> String {
    format!("sha256:{}", "11".repeat(32))
}

fn commit(kind: &str, id: &str, expected: u64, events: &[Value]) -> Commit {
    let event = |payload: &Value| NewEvent {
        event_type: format!("{kind}.{}", payload["type"].as_str().unwrap()).into(),
        event_version: "1".into(),
        payload: payload.to_string(),
        customer: None,
    };
    let events = events.iter().map(event).collect();
    let write = Write { stream: StreamId::new(kind, id), expected, events };
    Commit::of(Meta::new(Actor::System, "cmd"), vec![write])
}

/// Three events: the runner enrolled, disconnected and reconnected.
pub(super) fn enrolled() -> Commit {
    let identity_key = hex::encode(key().verifying_key().as_bytes());
    let enrolled = json!({"type": "enrolled", "identity_key": identity_key});
    let silent = json!({"type": "disconnected", "last_contact_at": "2026-11-21T12:00:00.000000Z"});
    commit("runner", RUNNER, 0, &[enrolled, silent, json!({"type": "reconnected"})])
}

/// Two events: the job was queued, and the runner claimed it.
pub(super) fn claimed(job: &str) -> Commit {
    let queued = json!({"type": "queued", "manifest": manifest()});
    let claimed = json!({"type": "claimed", "execution": format!("exe_{job}"), "runner": RUNNER});
    commit("job", job, 0, &[queued, claimed])
}

pub(super) fn ended(job: &str, end: &Value) -> Commit {
    commit("job", job, 2, std::slice::from_ref(end))
}

/// Report that the job failed with exit code 3, signed with this key.
pub(super) fn signed(job: &str, key: &SigningKey) -> Value {
    let execution = format!("exe_{job}");
    let statement = json!({"version": 1, "runner": RUNNER, "job": job, "execution": &execution,
        "outcome": "failed", "reason": "exit_code", "exit_code": 3, "manifest": manifest()});
    let statement = String::from_utf8(proof::canonical::json(&statement).unwrap()).unwrap();
    let envelope = dsse::sign(STATEMENT_TYPE, statement.as_bytes(), key);
    let key = hex::encode(key.verifying_key().as_bytes());
    json!({"type": "failed", "execution": execution, "seq": 2, "reason": "exit_code", "detail": "",
        "exit_code": 3, "signed": {"statement": statement, "key": key,
        "signature": envelope.signatures[0].sig}})
}
