//! Tests the monitor of an execution with files of a shim and a scripted server.
use schemas::runner::{ExecutionState, FailureReason};

use super::*;
use crate::{
    data,
    journal::Stop,
    keys::Keys,
    supervisor::{
        recover::open_claims,
        tests::{agent, execution, exit, open_claim, record_claim, until},
    },
};

#[tokio::test]
async fn a_removed_log_does_not_keep_an_execution_open() {
    let (_dir, agent, _) =
        agent(vec![r#"202 Accepted|{"job_state":"failed","committed_bytes":0}"#]).await;
    record_claim(&agent);
    agent.data.job(execution()).create().unwrap();
    let last = format!(
        r#"{{"execution":"{}","seq":1,"type":"finished","payload":{{"outcome":"failed","log_len":9,"log_sha256":"ab"}},"log_len":9}}"#,
        execution()
    );
    data::replace(&agent.data.job(execution()).reports(), (last + "\n").as_bytes()).unwrap();
    begin(&agent, open_claim(ClaimStage::Exited(exit())));
    until("the execution to end", || agent.state().running.is_empty()).await;
    assert_eq!(open_claims(&agent).unwrap(), [], "the result is reported");
}

#[tokio::test]
async fn a_result_is_reported_after_its_log_was_finalized() {
    // given a running shim, and a server that stopped waiting and finalized the log
    let finalized = r#"412 Precondition Failed|{"code":"fenced","job_state":"outcome_unknown"}"#;
    let (_dir, agent, requests) = agent(vec![finalized, r#"200 OK|{"job_state":"failed"}"#]).await;
    record_claim(&agent);
    let dir = agent.data.job(execution());
    dir.create().unwrap();
    data::replace(&dir.log(), b"a line\n").unwrap();
    agent.state().log.interval_ms = 50;
    begin(&agent, open_claim(ClaimStage::Spawned(Process::of(std::process::id()).unwrap())));
    until("a rejected log chunk", || !requests.lock().unwrap().is_empty()).await;
    // when the shim writes its final report
    let last = format!(
        r#"{{"execution":"{}","seq":1,"type":"finished","payload":{{"outcome":"failed","log_len":7,"log_sha256":"ab"}},"log_len":7}}"#,
        execution()
    );
    data::replace(&dir.reports(), (last + "\n").as_bytes()).unwrap();
    // then the server receives the final report
    until("the execution to end", || agent.state().running.is_empty()).await;
    assert!(requests.lock().unwrap()[1].contains("finished"), "{requests:?}");
    assert_eq!(open_claims(&agent).unwrap(), [], "the result is reported");
}

#[tokio::test]
async fn a_job_without_disk_space_is_reported_from_the_journal() {
    let (_dir, agent, requests) = agent(vec![r#"200 OK|{"job_state":"failed"}"#]).await;
    record_claim(&agent);
    begin(&agent, open_claim(ClaimStage::Exited(exit())));
    until("the execution to end", || agent.state().running.is_empty()).await;
    assert_eq!(open_claims(&agent).unwrap(), []);
    let requests = requests.lock().unwrap();
    assert!(requests[0].contains("spawn_failed"), "{requests:?}");
}

#[tokio::test]
async fn a_result_from_the_journal_is_internal_if_a_child_ran() {
    let (_dir, agent, requests) = agent(vec![r#"200 OK|{"job_state":"failed"}"#]).await;
    record_claim(&agent);
    let child = (Process::of(std::process::id()).unwrap(), Stop::default());
    begin(&agent, OpenClaim { children: vec![child], ..open_claim(ClaimStage::Exited(exit())) });
    until("the execution to end", || agent.state().running.is_empty()).await;
    let requests = requests.lock().unwrap();
    assert!(
        requests[0].contains(r#""seq":1,"#) && requests[0].contains(r#""internal""#),
        "{requests:?}"
    );
}

#[test]
fn a_replacing_result_does_not_mean_that_nothing_started() {
    let reason_after = |reason| {
        let exit = Exit { reason, ..exit() };
        report::with_rejection(
            spawn::final_report(exit, "no".into(), b""),
            "the server rejects the start",
        )
        .reason
    };
    for reason in [None, Some(FailureReason::Refused), Some(FailureReason::SpawnFailed)] {
        assert_eq!(reason_after(reason), Some(FailureReason::Internal));
    }
    for reason in [FailureReason::PlanStale, FailureReason::TimedOut] {
        assert_eq!(reason_after(Some(reason)), Some(reason));
    }
}

const SHORT_PAUSE: Duration = Duration::from_millis(1);
const INVALID: &str = r#"422 Unprocessable Entity|{"code":"invalid","detail":"too many phases"}"#;
const NUMBER_USED: &str = r#"409 Conflict|{"code":"seq_conflict"}"#;

/// Writes the reports of an execution that succeeded: a phase, which the server rejects, and the
/// final report.
fn succeeded_claim(agent: &Agent) -> OpenClaim {
    record_claim(agent);
    let dir = agent.data.job(execution());
    dir.create().unwrap();
    let of = execution();
    let phase = format!(
        r#"{{"execution":"{of}","seq":1,"type":"phase","payload":{{"name":"x"}},"log_len":0}}"#
    );
    let last = format!(
        r#"{{"execution":"{of}","seq":2,"type":"finished","payload":{{"outcome":"succeeded","log_len":0,"log_sha256":"ab"}},"log_len":0}}"#
    );
    data::replace(&dir.reports(), format!("{phase}\n{last}\n").as_bytes()).unwrap();
    open_claim(ClaimStage::Spawned(Process {
        start_time: 1,
        ..Process::of(std::process::id()).unwrap()
    }))
}

#[tokio::test]
async fn a_permanently_rejected_report_is_replaced_by_a_result_that_names_it() {
    // given a server that rejects a report, once with another code, and a proxy that fails in
    // between
    let lost = "503 Service Unavailable|";
    let other = r#"409 Conflict|{"code":"rejected","detail":"cannot change the job: the execution has not started; report its start first"}"#;
    let mut responses = vec![INVALID, lost, other];
    responses.extend([INVALID; 10]);
    responses.push(r#"200 OK|{"job_state":"failed"}"#);
    let (_dir, agent, requests) = agent(responses).await;
    let claim = succeeded_claim(&agent);
    // when the execution is monitored
    begin_with(&agent, claim, SHORT_PAUSE);
    // then a final report replaces the rejected report after ten equal rejections
    until("the execution to end", || agent.state().running.is_empty()).await;
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 14);
    assert!(
        requests[..13].iter().all(|request| request.contains(r#""type":"phase""#)),
        "{requests:?}"
    );
    let report = requests[13].split_once("\r\n\r\n").unwrap().1;
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    assert_eq!((&report["seq"], &report["type"]), (&1.into(), &"finished".into()));
    assert_eq!(report["payload"]["outcome"], "failed");
    assert_eq!(report["payload"]["reason"], "internal");
    assert_eq!(report["payload"]["log_sha256"], "ab");
    assert_eq!(
        report["payload"]["detail"],
        "the server rejects the report of a phase: too many phases (invalid); the job itself succeeded"
    );
    assert_eq!(open_claims(&agent).unwrap(), [], "the result is reported");
}

#[tokio::test]
async fn a_rejected_report_does_not_end_a_job_whose_shim_lives() {
    let (_dir, agent, requests) = agent(vec![INVALID; 60]).await;
    let claim = succeeded_claim(&agent);
    let dir = agent.data.job(execution());
    let text = std::fs::read_to_string(dir.reports()).unwrap();
    let phase = text.lines().next().unwrap().to_owned() + "\n";
    data::replace(&dir.reports(), phase.as_bytes()).unwrap();
    let alive = ClaimStage::Spawned(Process::of(std::process::id()).unwrap());
    begin_with(&agent, OpenClaim { stage: alive, ..claim }, SHORT_PAUSE);
    until("rejected reports", || requests.lock().unwrap().len() > 20).await;
    assert!(requests.lock().unwrap().iter().all(|request| request.contains("phase")));
    assert!(!dir.cancel().exists() && !agent.state().running.is_empty());
    data::replace(&dir.reports(), text.as_bytes()).unwrap();
    until("the final report", || requests.lock().unwrap().last().unwrap().contains("finished"))
        .await;
}

#[tokio::test]
async fn a_result_that_is_always_rejected_is_left_to_the_server() {
    let (_dir, agent, requests) = agent(vec![INVALID; 20]).await;
    let claim = succeeded_claim(&agent);
    begin_with(&agent, claim, SHORT_PAUSE);
    until("the execution to end", || agent.state().running.is_empty()).await;
    assert_eq!(requests.lock().unwrap().len(), 20);
    let last = agent.journal.read().unwrap().pop().unwrap().event;
    assert!(
        matches!(last, JournalEvent::Abandoned { reason: why, .. } if why.contains("too many phases"))
    );
}

#[tokio::test]
async fn a_result_from_the_journal_takes_the_first_free_number() {
    // given an execution whose files were removed after the server received two reports
    let responses = vec![NUMBER_USED, NUMBER_USED, r#"200 OK|{"job_state":"failed"}"#];
    let (_dir, agent, requests) = agent(responses).await;
    record_claim(&agent);
    begin_with(&agent, open_claim(ClaimStage::Exited(exit())), SHORT_PAUSE);
    until("the execution to end", || agent.state().running.is_empty()).await;
    let requests = requests.lock().unwrap();
    assert!(
        requests[2].contains(r#""seq":3,"#) && requests[2].contains("spawn_failed"),
        "{requests:?}"
    );
    assert_eq!(open_claims(&agent).unwrap(), [], "the result is reported");
}

#[tokio::test]
async fn a_plan_rejection_names_the_summary_that_is_too_large() {
    // given a plan whose summary is too large for the server
    let large = r#"413 Payload Too Large|{"code":"too_large","detail":"a blob has at most 8 MiB"}"#;
    let first = r#"422 Unprocessable Entity|{"code":"invalid","detail":"PUT it first"}"#;
    let mut responses = [large, first].repeat(10);
    responses.push(r#"200 OK|{"job_state":"failed"}"#);
    let (_dir, agent, requests) = agent(responses).await;
    let claim = succeeded_claim(&agent);
    let (dir, digest) = (agent.data.job(execution()), format!("sha256:{:064}", 0));
    std::fs::write(dir.blobs().join(&digest), "{}").unwrap();
    let plan = serde_json::json!({"execution": execution(), "seq": 1, "type": "plan", "payload": {
        "digest": digest, "file": digest, "summary": digest, "noop": false, "add": 1, "change": 0,
        "destroy": 0, "tool": "terraform 1.9", "signature": ""}, "log_len": 0});
    let text = std::fs::read_to_string(dir.reports()).unwrap();
    let last = text.lines().nth(1).unwrap();
    data::replace(&dir.reports(), format!("{plan}\n{last}\n").as_bytes()).unwrap();
    // when the execution is monitored, then its final report names the size limit
    begin_with(&agent, claim, SHORT_PAUSE);
    until("the execution to end", || agent.state().running.is_empty()).await;
    let requests = requests.lock().unwrap();
    assert!(requests.last().unwrap().contains("a blob has at most 8 MiB"), "{requests:?}");
}

#[tokio::test]
async fn a_shim_without_a_result_releases_its_slot() {
    let (_dir, agent, _) = agent(vec![]).await;
    let dead = Process { start_time: 1, ..Process::of(std::process::id()).unwrap() };
    let claim = open_claim(ClaimStage::Spawned(dead));
    assert_eq!(claim.state(&agent.data).unwrap(), ExecutionState::Unknown);
    begin(&agent, claim);
    until("the execution to end", || agent.state().running.is_empty()).await;
}

#[tokio::test]
async fn the_final_report_is_signed_and_the_journal_has_its_digest() {
    // given an execution that was verified, reported an output, and succeeded
    let accepted = r#"200 OK|{"job_state":"running"}"#;
    let (_dir, agent, requests) = agent(vec![accepted; 3]).await;
    let claim = succeeded_claim(&agent);
    let digest = |of: u8| -> domain::digest::Digest { [of; 32].into() };
    let verified = serde_json::json!({"at": crate::host::now(), "entry": "verified",
        "execution": execution(), "manifest": digest(1), "grant": digest(2), "kind": "apply",
        "class": "mutating", "plugin": "p", "fence": {"epoch": 1, "position": 4}});
    let verified: crate::journal::Entry = serde_json::from_value(verified).unwrap();
    agent.journal.write(verified.event).unwrap();
    let of = execution();
    let outputs = format!(
        r#"{{"execution":"{of}","seq":1,"type":"outputs","payload":{{"outputs":{{"b":2,"a":0.1}}}},"log_len":0}}"#
    );
    let empty = hex::encode(proof::sha256(b""));
    let last = format!(
        r#"{{"execution":"{of}","seq":2,"type":"finished","payload":{{"outcome":"succeeded","exit_code":0,"log_len":0,"log_sha256":"{empty}"}},"log_len":0}}"#
    );
    let reports = agent.data.job(of).reports();
    data::replace(&reports, format!("{outputs}\n{last}\n").as_bytes()).unwrap();
    // when its final report is sent
    begin(&agent, claim);
    until("the execution to end", || agent.state().running.is_empty()).await;
    let report = requests.lock().unwrap()[1].split_once("\r\n\r\n").unwrap().1.to_owned();
    let report: Report = serde_json::from_str(&report).unwrap();
    let end = report.end.unwrap();
    // then the runner's key signed it, and it names manifest, grant and outputs
    let keys = [agent.keys.identity.now().key.verifying_key()];
    let payload =
        proof::dsse::verify_as(schemas::runner::STATEMENT_TYPE, &end.statement, &keys).unwrap();
    let statement: schemas::runner::Statement = serde_json::from_slice(&payload).unwrap();
    assert_eq!((statement.job, statement.execution), (super::super::tests::job(), of));
    assert_eq!((statement.manifest, statement.grant), (Some(digest(1)), Some(digest(2))));
    let outputs = proof::canonical::hash(&serde_json::json!({"a": 0.1, "b": 2})).unwrap();
    assert_eq!(statement.outputs, Some(outputs.into()));
    assert_eq!(statement.log.unwrap().sha256, proof::sha256(b"").into());
    // and the signed journal head covers the entry with its digest
    let head = crate::journal::open_head(&end.journal_head.unwrap(), &keys).unwrap();
    let lines = crate::journal::texts(&agent.data).unwrap();
    let examined = crate::journal::examine(&lines[..head.entries as usize]).unwrap();
    assert_eq!(examined.holds(&head), Ok(0));
    let digest: domain::digest::Digest = proof::sha256(&payload).into();
    let line = String::from_utf8(lines[head.entries as usize - 1].clone()).unwrap();
    assert!(line.contains("statement_signed") && line.contains(&digest.to_string()), "{line}");
}

/// Returns the report in a request.
fn report_in(request: &str) -> Report {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test]
async fn a_repeated_final_report_is_signed_by_the_current_key() {
    // given a server that waits for the log and receives the final report several times
    let mut responses = vec![r#"200 OK|{"job_state":"running"}"#];
    responses.extend([r#"202 Accepted|{"job_state":"succeeded","committed_bytes":0}"#; 20]);
    responses.push(r#"200 OK|{"job_state":"succeeded"}"#);
    let (_dir, agent, requests) = agent(responses).await;
    let former = agent.keys.identity.now().key.verifying_key();
    let claim = succeeded_claim(&agent);
    begin_with(&agent, claim, SHORT_PAUSE);
    until("the final report", || requests.lock().unwrap().len() >= 2).await;
    // when the runner replaces its key
    let next = Keys::begin_next(&agent.data).unwrap();
    let new = next.key.verifying_key();
    agent.keys.activate_next(&agent.data, next).unwrap();
    until("the execution to end", || agent.state().running.is_empty()).await;
    // then the new key signs later reports
    let requests = requests.lock().unwrap();
    let is_by = |request: &str, key| {
        let end = report_in(request).end.unwrap();
        proof::dsse::verify_as(schemas::runner::STATEMENT_TYPE, &end.statement, &[key]).is_ok()
    };
    assert_eq!(requests.len(), 22);
    assert!(is_by(&requests[1], former) && is_by(&requests[21], new));
}

const STATEMENT_REJECTED: &str =
    r#"422 Unprocessable Entity|{"code":"statement_invalid","detail":"there are other outputs"}"#;

#[tokio::test]
async fn a_result_whose_statement_is_rejected_is_sent_without_one() {
    // given a job that succeeded, and a server that rejects its statement
    let mut responses = vec![r#"200 OK|{"job_state":"running"}"#];
    responses.extend([STATEMENT_REJECTED; 3]);
    responses.push(r#"200 OK|{"job_state":"succeeded"}"#);
    let (_dir, agent, requests) = agent(responses).await;
    let claim = succeeded_claim(&agent);
    // when its final report is sent
    begin_with(&agent, claim, SHORT_PAUSE);
    until("the execution to end", || agent.state().running.is_empty()).await;
    // then the same result is sent unsigned after three rejections
    let requests = requests.lock().unwrap();
    let ends: Vec<_> = requests[1..].iter().map(|request| report_in(request)).collect();
    let are_signed: Vec<_> = ends.iter().map(|end| end.end.is_some()).collect();
    assert_eq!(are_signed, [true, true, true, false]);
    assert_eq!((ends[3].seq, &ends[3].body), (ends[0].seq, &ends[0].body));
    assert_eq!(open_claims(&agent).unwrap(), [], "the result is reported");
    // and the journal records the reason
    let entries = agent.journal.read().unwrap();
    let reasons = entries.iter().filter_map(|entry| {
        let JournalEvent::StatementRejected { reason: why, .. } = &entry.event else { return None };
        Some(why.as_str())
    });
    assert_eq!(reasons.collect::<Vec<_>>(), ["there are other outputs (statement_invalid)"]);
}
