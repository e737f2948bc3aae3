//! Checks a runner's signature of an execution result, and compares the signed data with the data
//! from the server.
use schemas::{
    control::jobs::{Attempt, Job, SignedResult},
    runner::Statement,
};

/// Verifies the signature, and describes the result in one line. Trusts the server only on whether
/// the key belongs to the runner.
pub(crate) fn signature_text(job: &Job, attempt: &Attempt) -> String {
    let Some(signed) = &attempt.signed else {
        return "not signed by its runner: the result relies on the server alone".into();
    };
    match mismatch(job, attempt, signed) {
        Some(why) => format!("INVALID SIGNATURE: {why}"),
        None => format!("signed by its runner, {}", signed.digest),
    }
}

fn mismatch(job: &Job, attempt: &Attempt, signed: &SignedResult) -> Option<String> {
    let SignedResult { statement, key, signature, key_matches_runner, .. } = signed;
    let Some(opened) = Statement::open(statement, key, signature) else {
        return Some(format!("the runner's key {key} did not sign this statement"));
    };
    if !key_matches_runner {
        return Some(format!("{key} was never a key of {}", attempt.runner));
    }
    let of = (opened.job, opened.execution, opened.runner);
    if of != (job.id, attempt.execution, attempt.runner) {
        return Some("the statement belongs to another job, execution or runner".into());
    }
    if let Some(manifest) = opened.manifest.as_ref().filter(|ran| **ran != job.manifest) {
        return Some(format!("the runner signed another manifest: {manifest}"));
    }
    let recorded = (attempt.exit_code, attempt.signal);
    if (opened.exit_code, opened.signal) != recorded && recorded != (None, None) {
        return Some("the runner signed another exit code or signal".into());
    }
    if let (Some(log), Some(stored)) =
        (&opened.log, attempt.log.as_ref().filter(|log| log.complete))
        && (log.length_bytes, &log.sha256) != (stored.length_bytes, &stored.sha256)
    {
        return Some("the runner signed another log".into());
    }
    let is_last = job.attempts.last().is_some_and(|last| last.execution == attempt.execution);
    let outcome = opened.outcome.word();
    let is_theirs = is_last && ["succeeded", "failed", "cancelled"].contains(&job.state.as_str());
    // The server records a late result as a warning only. The earlier resolution remains valid.
    let is_late = attempt.warnings.iter().any(|note| note.starts_with("late_result"));
    (is_theirs && !is_late && outcome != job.state).then(|| {
        format!("the runner signed the outcome {outcome}, but the server shows {}", job.state)
    })
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;
    use proof::dsse;
    use schemas::runner::STATEMENT_TYPE;
    use serde_json::{Value, json};

    use super::*;

    const ID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

    fn digest(of: u8) -> String {
        format!("sha256:{of:064}")
    }

    /// Job that succeeded, as the server returns it, with the runner's signature.
    fn job(change: impl FnOnce(&mut Value)) -> Job {
        let key = SigningKey::from_bytes(&[7; 32]);
        let statement = json!({"version": 1, "runner": format!("rnr_{ID}"), "job": format!("job_{ID}"),
            "execution": format!("exe_{ID}"), "outcome": "succeeded", "exit_code": 0,
            "manifest": digest(1), "log": {"length_bytes": 7, "sha256": digest(2), "omitted_bytes": 0}});
        let statement = String::from_utf8(proof::canonical::json(&statement).unwrap()).unwrap();
        let envelope = dsse::sign(STATEMENT_TYPE, statement.as_bytes(), &key);
        let at = "2026-11-21T12:00:00.000000Z";
        let mut job = json!({
            "id": format!("job_{ID}"), "kind": "apply", "class": "mutating", "state": "succeeded",
            "cancelling": false, "manifest": digest(1), "queued_at": at, "ended_at": at,
            "attempts": [{
                "attempt": 1, "execution": format!("exe_{ID}"), "runner": format!("rnr_{ID}"),
                "claimed_at": at, "ended_at": at, "exit_code": 0,
                "log": {"length_bytes": 7, "sha256": digest(2), "omitted_bytes": 0, "complete": true},
                "signed": {"statement": statement, "digest": digest(3), "key_matches_runner": true,
                    "key": hex::encode(key.verifying_key().as_bytes()),
                    "signature": envelope.signatures[0].sig},
            }],
        });
        change(&mut job);
        serde_json::from_value(job).unwrap()
    }

    fn line(change: impl FnOnce(&mut Value)) -> String {
        let job = job(change);
        signature_text(&job, &job.attempts[0])
    }

    #[test]
    fn forged_result_does_not_match_the_signature() {
        assert_eq!(line(|_| {}), format!("signed by its runner, {}", digest(3)));
        let mismatch = |change: fn(&mut Value), why: &str| {
            let line = line(change);
            assert!(line.starts_with("INVALID SIGNATURE") && line.contains(why), "{line}");
        };
        mismatch(|job| job["state"] = json!("failed"), "server shows failed");
        mismatch(|job| job["manifest"] = json!(digest(9)), "another manifest");
        mismatch(|job| job["id"] = json!("job_01ARZ3NDEKTSV4RRFFQ69G5FAW"), "another job");
        mismatch(|job| job["attempts"][0]["exit_code"] = json!(3), "exit code");
        mismatch(|job| job["attempts"][0]["log"]["sha256"] = json!(digest(9)), "log");
        mismatch(
            |job| job["attempts"][0]["signed"]["key_matches_runner"] = json!(false),
            "never a key",
        );
        let forged = |job: &mut Value| {
            let statement = job["attempts"][0]["signed"]["statement"].as_str().unwrap();
            job["attempts"][0]["signed"]["statement"] =
                json!(statement.replace("succeeded", "failed"));
        };
        mismatch(forged, "did not sign");
        let unsigned = line(|job| drop(job["attempts"][0]["signed"].take()));
        assert!(unsigned.contains("relies on the server alone"), "{unsigned}");
    }
}
