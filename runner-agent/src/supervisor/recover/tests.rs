//! Tests of the claim states that follow from a journal.
use crate::host;

use super::*;

const CLAIM: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn job() -> JobId {
    "job_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap()
}

fn execution() -> ExecutionId {
    "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap()
}

fn claiming() -> JournalEvent {
    JournalEvent::Claiming { job: job(), claim_id: CLAIM.into() }
}

fn claimed() -> JournalEvent {
    JournalEvent::Claimed { job: job(), execution: execution(), claim_id: CLAIM.into(), attempt: 1 }
}

fn spawning() -> JournalEvent {
    JournalEvent::Spawning { job: job(), execution: execution() }
}

fn spawned(process: Process) -> JournalEvent {
    JournalEvent::Spawned { job: job(), execution: execution(), process }
}

fn own_process() -> Process {
    Process::of(std::process::id()).unwrap()
}

fn dead_process() -> Process {
    Process { start_time: 1, ..own_process() }
}

fn exited() -> JournalEvent {
    let exit = Exit { outcome: Outcome::Succeeded, code: Some(0), signal: None, reason: None };
    JournalEvent::Exited { job: job(), execution: execution(), exit }
}

fn claims_after(events: &[JournalEvent]) -> Vec<OpenClaim> {
    fold(events.iter().map(|event| Entry { at: host::now(), event: event.clone() }))
}

fn state(events: &[JournalEvent]) -> ExecutionState {
    let dir = tempfile::tempdir().unwrap();
    claims_after(events)[0].state(&Data::open(dir.path()).unwrap()).unwrap()
}

#[test]
fn a_claim_whose_response_was_lost_was_never_spawned() {
    assert_eq!(state(&[claiming()]), ExecutionState::NeverSpawned);
    assert_eq!(claims_after(&[claiming()])[0].execution, None);
    assert_eq!(state(&[claiming(), claimed()]), ExecutionState::NeverSpawned);
}

#[test]
fn after_spawning_the_state_is_unknown_without_a_live_process() {
    assert_eq!(state(&[claiming(), claimed(), spawning()]), ExecutionState::Unknown);
    let started = [claiming(), claimed(), spawning(), spawned(dead_process())];
    assert_eq!(state(&started), ExecutionState::Unknown);
    let alive = [claiming(), claimed(), spawning(), spawned(own_process())];
    assert_eq!(state(&alive), ExecutionState::Alive);
    let other_boot = Process { boot_id: "x".into(), ..own_process() };
    let restarted = [claiming(), claimed(), spawning(), spawned(other_boot)];
    assert_eq!(state(&restarted), ExecutionState::Unknown);
}

#[test]
fn a_result_stays_open_until_it_is_reported() {
    let ended = [claiming(), claimed(), spawning(), spawned(dead_process()), exited()];
    assert_eq!(state(&ended), ExecutionState::Exited);
    let reported = JournalEvent::Reported { job: job(), execution: execution() };
    assert_eq!(claims_after(&[&ended[..], &[reported]].concat()), []);
}

#[test]
fn a_final_report_on_disk_counts_without_a_journal_entry() {
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(dir.path()).unwrap();
    let files = data.job(execution());
    files.create().unwrap();
    let last = r#"{"execution":"exe_01ARZ3NDEKTSV4RRFFQ69G5FAV","seq":2,"type":"finished","payload":
        {"outcome":"succeeded","log_len":1,"log_sha256":"ab"},"log_len":1}"#;
    fs::write(files.reports(), format!("{{broken\n{}\n", last.replace('\n', ""))).unwrap();
    let claim = &claims_after(&[claiming(), claimed(), spawning(), spawned(dead_process())])[0];
    assert_eq!(claim.state(&data).unwrap(), ExecutionState::Exited);
    assert_eq!(claim.entry(&data).unwrap().exit.unwrap().outcome, Outcome::Succeeded);
    // Without its newline the report is incomplete. The supervisor would never send it, and each
    // session would request it again.
    fs::write(files.reports(), last.replace('\n', "")).unwrap();
    assert_eq!(claim.state(&data).unwrap(), ExecutionState::Unknown);
}

#[test]
fn a_claim_that_was_not_granted_or_was_abandoned_is_not_open() {
    let (job, claim_id, why) = (job(), CLAIM.to_owned(), "x".to_owned());
    let rejected =
        JournalEvent::ClaimRejected { job, claim_id: claim_id.clone(), reason: why.clone() };
    assert_eq!(claims_after(&[claiming(), rejected]), []);
    assert_eq!(
        claims_after(&[
            claiming(),
            claimed(),
            JournalEvent::Abandoned { job, claim_id, reason: why }
        ]),
        []
    );
}

#[tokio::test]
async fn processes_of_a_dead_shim_get_their_stop_signal_and_grace_period() {
    use std::os::unix::process::CommandExt as _;
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("saved");
    // Terraform's providers finish their operations after SIGINT and lose them after SIGTERM.
    let script = r#"trap 'sleep 1; echo saved > "$0"; exit' INT; echo ready > "$0.ready"; while :; do sleep 0.1; done"#;
    let mut child = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(&saved)
        .process_group(0)
        .spawn()
        .unwrap();
    let process = Process::of(child.id()).unwrap();
    while !dir.path().join("saved.ready").exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stop = Stop { signal: "SIGINT".into(), grace_ms: 20_000 };
    let child_began =
        JournalEvent::ChildStarted { execution: execution(), process: process.clone(), stop };
    let events = [claiming(), claimed(), spawning(), spawned(dead_process()), child_began];
    let (_data, agent, _) = crate::supervisor::tests::agent(vec![]).await;
    orphans::end(&agent, &claims_after(&events)[0]);
    while process.is_alive().unwrap() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(fs::read_to_string(saved).unwrap(), "saved\n");
    // Fails if the agent has already reaped the child.
    let _waited_for = child.wait();
}

#[test]
fn a_child_without_a_stop_gets_the_default_grace_period() {
    let line = r#"{"at":"2026-01-01T00:00:00Z","entry":"child_started","execution":"exe_01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "process":{"pid":1,"start_time":1,"boot_id":"x"}}"#;
    let entry: Entry = serde_json::from_str(line).unwrap();
    assert!(
        matches!(entry.event, JournalEvent::ChildStarted { stop, .. } if stop == Stop::default())
    );
}

#[test]
fn abandoned_claims_with_a_dead_shim_are_found_again() {
    let (job, claim_id, why) = (job(), CLAIM.to_owned(), "x".to_owned());
    let abandoned = JournalEvent::Abandoned { job, claim_id, reason: why };
    let child = JournalEvent::ChildStarted {
        execution: execution(),
        process: own_process(),
        stop: Stop::default(),
    };
    let left = |shim: Process, last: &[JournalEvent]| {
        let events =
            [&[claiming(), claimed(), spawning(), spawned(shim), child.clone()], last].concat();
        abandoned_without_shim(
            events.into_iter().map(|event| Entry { at: host::now(), event }).collect(),
        )
    };
    let found = left(dead_process(), std::slice::from_ref(&abandoned));
    assert_eq!(found[0].children[0].0, own_process());
    assert_eq!(
        left(own_process(), std::slice::from_ref(&abandoned)),
        [],
        "a shim that lives ends its own children"
    );
    assert_eq!(left(dead_process(), &[]), [], "the claim is not abandoned yet");
}

#[test]
fn the_journal_shows_that_an_execution_was_abandoned() {
    let dir = tempfile::tempdir().unwrap();
    let journal = crate::journal::Journal::open(&Data::open(dir.path()).unwrap()).unwrap();
    for event in [claiming(), claimed(), spawning(), spawned(own_process())] {
        journal.write(event).unwrap();
        assert!(!journal.is_abandoned(execution()).unwrap());
    }
    let (job, claim_id, why) = (job(), CLAIM.to_owned(), "x".to_owned());
    journal.write(JournalEvent::Abandoned { job, claim_id, reason: why }).unwrap();
    assert!(journal.is_abandoned(execution()).unwrap());
}
