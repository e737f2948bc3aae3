//! Tests an agent with a real journal and a scripted server.
use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use domain::ids::{ExecutionId, JobId};
use schemas::{
    keys::KeyList,
    runner::{Exit, FailureReason, JobKind, LogSettings, Outcome, RunnerMode, SessionOpened},
};
use tokio::sync::watch;

use super::{
    agent::{REQUIRED_DISK_BYTES, is_enough_disk},
    recover::{ClaimStage, OpenClaim},
    *,
};
use crate::{
    budgets::Budgets, client::scripted::scripted, journal::JournalEvent, witness::Verified,
};

const ID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
const CLAIM: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

pub(super) fn job() -> JobId {
    format!("job_{ID}").parse().unwrap()
}

pub(crate) fn execution() -> ExecutionId {
    format!("exe_{ID}").parse().unwrap()
}

pub(super) fn another() -> ExecutionId {
    "exe_01ARZ3NDEKTSV4RRFFQ69G5FAW".parse().unwrap()
}

/// Returns an agent whose server sends these responses, and the requests that the server received.
pub(super) async fn agent(
    responses: Vec<&'static str>,
) -> (tempfile::TempDir, Arc<Agent>, Arc<Mutex<Vec<String>>>) {
    let (dir, agent, requests, signals) = agent_with_signals(responses).await;
    // The sender of a real agent lives as long as its process.
    std::mem::forget(signals);
    (dir, agent, requests)
}

pub(super) async fn agent_with_signals(
    responses: Vec<&'static str>,
) -> (tempfile::TempDir, Arc<Agent>, Arc<Mutex<Vec<String>>>, watch::Sender<StopLevel>) {
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(dir.path()).unwrap();
    let (client, requests) = scripted(responses).await;
    let keys = Keys::open(&data).unwrap();
    let identity = Identity {
        runner: format!("rnr_{ID}").parse().unwrap(),
        mode: RunnerMode::Install,
        install: None,
        log_id: "log".into(),
        server: client.base().into(),
        trust: crate::tls::Trust::Public,
    };
    let server_keys = KeyList {
        version: 1,
        log_id: "log".into(),
        issued_at: crate::host::now(),
        keys: Vec::new(),
    };
    let settings = Settings {
        slots: 1,
        plugin_dir: "/none".into(),
        pass_env: Vec::new(),
        budgets: Budgets::default(),
        images: Default::default(),
    };
    crate::policy::Choice::None.record(&data).unwrap();
    let (sender, stopping) = watch::channel(StopLevel::KeepRunning);
    let agent = Agent::new((data, keys, identity), client, server_keys, settings, stopping);
    (dir, agent.unwrap(), requests, sender)
}

pub(super) fn record_claim(agent: &Agent) {
    let (job, execution, claim_id) = (job(), execution(), CLAIM.to_owned());
    agent.journal.write(JournalEvent::Claiming { job, claim_id: claim_id.clone() }).unwrap();
    agent.journal.write(JournalEvent::Claimed { job, execution, claim_id, attempt: 1 }).unwrap();
}

pub(super) fn open_claim(stage: ClaimStage) -> OpenClaim {
    let (job, execution, claim_id) = (job(), Some(execution()), CLAIM.to_owned());
    OpenClaim { job, execution, claim_id, stage, children: Vec::new() }
}

pub(super) async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}");
}

pub(super) fn exit() -> Exit {
    let (outcome, reason) = (Outcome::Failed, Some(FailureReason::SpawnFailed));
    Exit { outcome, code: None, signal: None, reason }
}

#[tokio::test]
async fn an_execution_releases_only_its_own_slot() {
    let (_dir, agent, _) = agent(vec![]).await;
    let running = RunningJob { execution: Some(another()), ..RunningJob::default() };
    agent.state().running.insert(job(), running);
    agent.release(job(), Some(execution()));
    agent.update_job(job(), Some(execution()), |running| running.log_len = 9);
    agent.release(job(), None);
    assert_eq!(agent.state().running[&job()].log_len, 0);
    agent.release(job(), Some(another()));
    assert!(agent.state().running.is_empty());
}

pub(crate) fn verified() -> Verified {
    let manifest = serde_json::json!({
        "version": 1, "job": job(), "kind": "apply", "class": "mutating",
        "plugin": {"name": "terraform_module", "version": "1"}, "inputs": {},
        "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
    });
    let now = crate::host::now();
    let digest = format!("sha256:{:064}", 0);
    let grant = serde_json::json!({
        "version": 1, "log_id": "log", "manifest": digest, "job": job(), "execution": execution(),
        "attempt": 1, "runner": format!("rnr_{ID}"), "runner_key": "ab".repeat(32),
        "fence": {"epoch": 1, "position": 4}, "issued_at": now, "deadline": now,
    });
    Verified {
        manifest: serde_json::from_value(manifest).unwrap(),
        digest: digest.parse().unwrap(),
        manifest_bytes: Vec::new(),
        grant: serde_json::from_value(grant).unwrap(),
        grant_bytes: Vec::new(),
    }
}

#[tokio::test]
async fn an_approval_does_not_override_rules_that_changed_meanwhile() {
    let (dir, agent, _) = agent(vec![]).await;
    let rule = async |agent: &Agent| {
        claim::reauthorize(agent, verified()).await.err().map(|refusal| refusal.rule)
    };
    let policy = dir.path().join("policy.toml");
    std::fs::write(&policy, "version = 1\nisolation = \"process\"").unwrap();
    crate::policy::Choice::File(policy.clone()).record(&agent.data).unwrap();
    assert_eq!(rule(&agent).await, None);
    crate::disable::disable(&agent.data, "freeze", false).unwrap();
    assert_eq!(rule(&agent).await.as_deref(), Some("disabled"));
    crate::disable::enable(&agent.data).unwrap();
    std::fs::write(&policy, "version = 1\nkinds = [\"plan\"]").unwrap();
    assert_eq!(rule(&agent).await.as_deref(), Some("kinds"));
}

#[tokio::test]
async fn a_claimed_execution_is_in_the_claim_index() {
    let (_dir, agent, _) = agent(vec![]).await;
    record_claim(&agent);
    let granted = |of| agent.claim_index(|index| index.was_granted(of)).unwrap();
    assert!(granted(execution()) && !granted(another()));
}

#[tokio::test]
async fn a_veto_command_that_does_not_read_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policy.toml");
    std::fs::write(&path, "version = 1\nveto_command = [\"/bin/sleep\", \"600\"]").unwrap();
    let policy = crate::policy::Policy::read(&path).unwrap();
    // The manifest is larger than the buffer of a pipe.
    let verified = Verified { manifest_bytes: vec![b' '; 1 << 20], ..verified() };
    let refusal = spawn::veto(&policy, &verified, Duration::from_secs(1)).await.unwrap_err();
    assert!(refusal.detail.contains("longer than 1 s"), "{}", refusal.detail);
}

pub(super) fn opened() -> SessionOpened {
    SessionOpened {
        recorded_values: None,
        session_id: format!("ses_{ID}").parse().unwrap(),
        generation: 1,
        access_token: "T".into(),
        expires_in_s: 900,
        wait_s: 50,
        lease_s: 60,
        log: LogSettings::default(),
        resume: Vec::new(),
        server_time: crate::host::now(),
    }
}

#[tokio::test]
async fn a_session_fetches_the_servers_keys() {
    let response = format!("200 OK|{}", serde_json::to_string(&opened()).unwrap());
    let none = r#"404 Not Found|{"code":"not_found"}"#;
    let (_dir, agent, requests) = agent(vec![response.leak(), none]).await;
    session::open(&agent).await.unwrap();
    until("a request for the keys", || requests.lock().unwrap().len() == 2).await;
    assert!(requests.lock().unwrap()[1].contains(schemas::keys::KEYS_PATH));
}

#[tokio::test]
async fn a_superseded_session_request_is_retried_once_with_another_id() {
    let superseded = r#"409 Conflict|{"code":"session_superseded"}"#;
    let response = format!("200 OK|{}", serde_json::to_string(&opened()).unwrap());
    let (_dir, agent, requests) = agent(vec!["", superseded, response.leak()]).await;
    session::open(&agent).await.unwrap();
    let session_id_of = |request: &String| {
        let body: serde_json::Value =
            serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
        let assertion = body["assertion"].as_str().unwrap().to_owned();
        schemas::token::claims_unverified::<schemas::token::SessionAssertion>(&assertion)
            .unwrap()
            .session
    };
    let session_ids: Vec<_> = requests.lock().unwrap().iter().take(3).map(session_id_of).collect();
    assert!(
        session_ids[0] == session_ids[1] && session_ids[1] != session_ids[2],
        "{session_ids:?}"
    );
}

#[tokio::test]
async fn a_session_request_that_is_superseded_twice_ends_the_agent() {
    let superseded = r#"409 Conflict|{"code":"session_superseded"}"#;
    let (_dir, agent, requests) = agent(vec![superseded, superseded]).await;
    assert!(session::open(&agent).await.unwrap_err().is_superseded());
    assert_eq!(requests.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_failed_claim_requests_another_session() {
    let (_dir, agent, _) = agent(vec![]).await;
    agent.state().session = Some(opened());
    // given a journal that cannot be written
    let journal = agent.data.path("journal.ndjson");
    std::fs::remove_file(&journal).unwrap();
    std::fs::create_dir(&journal).unwrap();
    claim::handle_offer(&agent, job(), JobKind::Plan);
    until("the claim to fail", || agent.state().session_renewal.is_requested()).await;
    assert!(agent.state().running.is_empty());
    // and until the journal is writable again, the agent has no free slot
    agent.state().session_renewal.opened();
    agent.recover_journal();
    assert_eq!(agent.free_slots(), 0);
    std::fs::remove_dir(&journal).unwrap();
    agent.recover_journal();
    assert_eq!(agent.free_slots(), 1);
}

#[tokio::test]
async fn a_requested_session_opens_after_a_pause() {
    // given an agent with an open session
    let response = format!("200 OK|{}", serde_json::to_string(&opened()).unwrap());
    let poll = r#"200 OK|{"server_time":"2026-11-21T00:00:00Z"}"#;
    let mut responses: Vec<&'static str> = vec![response.leak()];
    responses.extend([poll; 40]);
    let (_dir, agent, requests) = agent(responses).await;
    let polls = tokio::spawn({
        let agent = Arc::clone(&agent);
        async move { poll::run(&agent).await }
    });
    let count_requests = |what: &str| {
        requests.lock().unwrap().iter().filter(|request| request.starts_with(what)).count()
    };
    until("the session to open", || agent.state().session.is_some()).await;
    assert_eq!(agent.free_slots(), 1);
    // when another session is requested
    agent.request_session();
    let begun = Instant::now();
    until("a poll", || count_requests("POST /runner/v1/poll") > 0).await;
    assert!(count_requests("POST /runner/v1/poll") > 0 && agent.free_slots() == 0);
    // then the agent does not open it immediately
    until("the session to end", || agent.state().session.is_none()).await;
    assert!(begun.elapsed() >= Duration::from_secs(1));
    polls.abort();
}

#[tokio::test]
async fn an_unknown_session_is_replaced() {
    // given an agent whose session is unknown to the server
    let response: &str = format!("200 OK|{}", serde_json::to_string(&opened()).unwrap()).leak();
    let unknown = r#"409 Conflict|{"code":"session_unknown"}"#;
    let (_dir, agent, requests) = agent(vec![response, unknown, unknown, unknown, response]).await;
    // when it polls
    let polls = tokio::spawn({
        let agent = Arc::clone(&agent);
        async move { poll::run(&agent).await }
    });
    // then it opens another session and does not exit
    let count_openings = || {
        let requests = requests.lock().unwrap();
        requests.iter().filter(|request| request.starts_with("POST /runner/v1/sessions")).count()
    };
    until("another session", || count_openings() >= 2).await;
    assert!(!polls.is_finished() && agent.state().ended.is_none());
    polls.abort();
}

#[tokio::test]
async fn rejected_session_requests_back_off() {
    // given a server that rejects every session request
    let rejection = r#"400 Bad Request|{"code":"body_invalid"}"#;
    let (_dir, agent, requests) = agent(vec![rejection; 20]).await;
    let polls = tokio::spawn({
        let agent = Arc::clone(&agent);
        async move { poll::run(&agent).await }
    });
    // then it sends requests at 0, 0.5 and 1.5 seconds, and not twice per second
    let begun = Instant::now();
    until("a third request", || requests.lock().unwrap().len() >= 3).await;
    assert!(begun.elapsed() >= Duration::from_millis(1_400), "{:?}", begun.elapsed());
    polls.abort();
}

#[tokio::test]
async fn a_drain_waits_for_a_requested_session() {
    // given an agent without a job and with a requested session
    let response: &str = format!("200 OK|{}", serde_json::to_string(&opened()).unwrap()).leak();
    let (_dir, agent, requests, signals) = agent_with_signals(vec![response]).await;
    agent.request_session();
    signals.send(StopLevel::Drain).unwrap();
    // then it exits only after that session
    let ended = poll::run(&agent).await.unwrap();
    assert!(matches!(ended, ExitReason::Drained), "{ended:?}");
    let requests = requests.lock().unwrap();
    assert!(requests.iter().any(|request| request.starts_with("POST /runner/v1/sessions")));
}

#[test]
fn no_job_starts_without_disk_space() {
    assert!(
        is_enough_disk(REQUIRED_DISK_BYTES + 1)
            && !is_enough_disk(REQUIRED_DISK_BYTES)
            && !is_enough_disk(0)
    );
}

#[tokio::test]
async fn nothing_is_claimed_while_draining() {
    let (_dir, agent, requests, signals) = agent_with_signals(vec![]).await;
    agent.state().session = Some(opened());
    claim::handle_offer(&agent, job(), JobKind::Plan);
    signals.send(StopLevel::Drain).unwrap();
    until("the offer to expire", || agent.state().running.is_empty()).await;
    assert!(requests.lock().unwrap().is_empty() && agent.state().session.is_some());
}
