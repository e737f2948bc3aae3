//! What a journal proves, and what it does not.
use crate::host;

use super::*;

const CLAIM: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn job() -> JobId {
    "job_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap()
}

fn execution() -> ExecutionId {
    "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap()
}

fn claiming() -> Fact {
    Fact::Claiming { job: job(), claim_id: CLAIM.into() }
}

fn claimed() -> Fact {
    Fact::Claimed { job: job(), execution: execution(), claim_id: CLAIM.into(), attempt: 1 }
}

fn spawning() -> Fact {
    Fact::Spawning { job: job(), execution: execution() }
}

fn spawned(process: Process) -> Fact {
    Fact::Spawned { job: job(), execution: execution(), process }
}

fn me() -> Process {
    Process::of(std::process::id()).unwrap()
}

fn dead() -> Process {
    Process { start_time: 1, ..me() }
}

fn exited() -> Fact {
    let exit = Exit { outcome: Outcome::Succeeded, code: Some(0), signal: None, reason: None };
    Fact::Exited { job: job(), execution: execution(), exit }
}

fn known(facts: &[Fact]) -> Vec<Known> {
    fold(facts.iter().map(|fact| Entry { at: host::now(), fact: fact.clone() }))
}

fn state(facts: &[Fact]) -> ExecutionState {
    let dir = tempfile::tempdir().unwrap();
    known(facts)[0].state(&Data::open(dir.path()).unwrap())
}

#[test]
fn a_claim_whose_answer_was_lost_was_never_spawned() {
    assert_eq!(state(&[claiming()]), ExecutionState::NeverSpawned);
    assert_eq!(known(&[claiming()])[0].execution, None);
    assert_eq!(state(&[claiming(), claimed()]), ExecutionState::NeverSpawned);
}

#[test]
fn from_the_moment_before_the_start_nothing_is_proven_without_a_process() {
    assert_eq!(state(&[claiming(), claimed(), spawning()]), ExecutionState::Unknown);
    let started = [claiming(), claimed(), spawning(), spawned(dead())];
    assert_eq!(state(&started), ExecutionState::Unknown);
    let alive = [claiming(), claimed(), spawning(), spawned(me())];
    assert_eq!(state(&alive), ExecutionState::Alive);
    let other_boot = Process { boot_id: "x".into(), ..me() };
    let restarted = [claiming(), claimed(), spawning(), spawned(other_boot)];
    assert_eq!(state(&restarted), ExecutionState::Unknown);
}

#[test]
fn an_end_is_known_until_it_was_reported() {
    let ended = [claiming(), claimed(), spawning(), spawned(dead()), exited()];
    assert_eq!(state(&ended), ExecutionState::Exited);
    let reported = Fact::Reported { job: job(), execution: execution() };
    assert_eq!(known(&[&ended[..], &[reported]].concat()), []);
}

#[test]
fn a_last_word_on_disk_counts_although_the_journal_does_not_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(dir.path()).unwrap();
    let files = data.job(execution());
    files.create().unwrap();
    let last = r#"{"execution":"exe_01ARZ3NDEKTSV4RRFFQ69G5FAV","seq":2,"type":"finished","payload":
        {"outcome":"succeeded","log_len":1,"log_sha256":"ab"},"log_len":1}"#;
    fs::write(files.reports(), format!("{{broken\n{}\n", last.replace('\n', ""))).unwrap();
    let known = &known(&[claiming(), claimed(), spawning(), spawned(dead())])[0];
    assert_eq!(known.state(&data), ExecutionState::Exited);
    assert_eq!(known.entry(&data).exit.unwrap().outcome, Outcome::Succeeded);
}

#[test]
fn a_claim_that_came_to_nothing_leaves_nothing() {
    let (job, claim_id, why) = (job(), CLAIM.to_owned(), "x".to_owned());
    let gone = Fact::NotClaimed { job, claim_id: claim_id.clone(), why: why.clone() };
    assert_eq!(known(&[claiming(), gone]), []);
    assert_eq!(known(&[claiming(), claimed(), Fact::Abandoned { job, claim_id, why }]), []);
}
