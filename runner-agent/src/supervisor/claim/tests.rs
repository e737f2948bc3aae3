//! An offer that comes a moment too early.
use domain::ids::{ExecutionId, JobId};
use schemas::{keys::KeyList, runner::RunnerMode};
use tokio::sync::watch;
use ulid::Ulid;

use super::*;
use crate::{
    client::Client,
    data::Data,
    enrol::Identity,
    keys::Keys,
    supervisor::{Settings, Stopping},
    tls::Trust,
};

/// An agent with one slot, whose server does not matter.
fn agent(data: &std::path::Path) -> (Arc<Agent>, watch::Sender<Stopping>) {
    let data = Data::open(data).unwrap();
    let keys = Keys::open(&data).unwrap();
    let server = "http://127.0.0.1:1".to_string();
    let identity = Identity {
        runner: "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
        mode: RunnerMode::Build,
        install: None,
        log_id: "L".into(),
        server: server.clone(),
        trust: Trust::Public,
    };
    let (settings, now) = (
        Settings { slots: 1, plugin_dir: "/nowhere".into(), policy: None, pass_env: vec![] },
        "2026-11-21T12:00:00Z".parse().unwrap(),
    );
    let server_keys = KeyList { version: 1, log_id: "L".into(), issued_at: now, keys: vec![] };
    let client = Client::new(&server, &Trust::Public).unwrap();
    let (stop, stopping) = watch::channel(Stopping::No);
    let agent = Agent::new((data, keys, identity), client, server_keys, settings, stopping);
    (agent.unwrap(), stop)
}

fn busy_with(agent: &Agent, job: JobId) {
    let execution = Some(ExecutionId(Ulid(1)));
    agent.state().running.insert(job, Attended { execution, ..Attended::default() });
}

#[tokio::test]
async fn an_offer_that_comes_just_before_a_slot_is_free_is_taken() {
    // given an agent whose only job is over, and is being tidied up
    let temp = tempfile::tempdir().unwrap();
    let (agent, _stop) = agent(temp.path());
    let (former, next) = (JobId(Ulid(1)), JobId(Ulid(2)));
    busy_with(&agent, former);
    assert!(!hold(&agent, next));
    // when the next one is offered meanwhile
    let (held, ()) = tokio::join!(hold_soon(&agent, next), async {
        sleep(LOOK * 3).await;
        agent.state().running.remove(&former);
    });
    // then it gets the slot
    assert!(held);
    assert!(agent.state().running.contains_key(&next));
}

#[tokio::test]
async fn an_offer_that_was_taken_meanwhile_is_not_taken_twice() {
    let temp = tempfile::tempdir().unwrap();
    let (agent, _stop) = agent(temp.path());
    let job = JobId(Ulid(1));
    assert!(hold(&agent, job));
    assert!(!hold(&agent, job));
    assert_eq!(agent.state().running.len(), 1);
}
