//! A parked runner costs no query.
use std::time::Duration;

use domain::{
    ids::{InstallId, RunnerId, SessionId},
    job::JobKind,
    runner::{Host, Identity, Mode, Runner},
};
use schemas::runner::{Poll, RunnerMode};
use serde_json::json;
use sqlx::Row as _;
use ulid::Ulid;

use super::world::{Agent, World};
use crate::dispatch::Session;

/// Transactions of this database so far; every statement of ours outside of one is one.
async fn transactions(world: &World) -> i64 {
    // Backends report what they did when they are idle, at most once a second.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let row = sqlx::query(
        "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()",
    )
    .fetch_one(&world.database.pool)
    .await
    .unwrap();
    row.get(0)
}

async fn rate(world: &World) -> i64 {
    let before = transactions(world).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    transactions(world).await - before
}

/// A runner as if it had enrolled and opened a session: only memory is of interest here.
fn seated(world: &World) -> Agent {
    let (id, install) = (RunnerId(Ulid::new()), InstallId(Ulid::new()));
    let identity = Identity {
        mode: Mode::Install,
        install: Some(install),
        identity_key: "00".repeat(32),
        sealing_key: Some("00".repeat(32)),
        version: "1".into(),
        host: Host { os: "linux".into(), arch: "x86_64".into(), hostname: None },
        enrolment: domain::ids::TokenId(Ulid::new()),
    };
    let runner = Runner { identity: Some(identity), ..Runner::default() };
    let now = world.app.dispatch.moment().instant;
    let session = SessionId(Ulid::new());
    let mut desk = world.app.dispatch.desk();
    desk.roster.meet(id, runner, 1, now);
    let capabilities = vec![JobKind::Plan];
    desk.seat(id, Session { capabilities, slots: 1, ..Session::new(session, 1, 1) }, now);
    let (mode, moment) = (RunnerMode::Install, world.app.now());
    let token = world.app.tokens.access(id, (mode, Some(install)), 1, moment).unwrap();
    let key = ed25519_dalek::SigningKey::from_bytes(&[1; 32]);
    Agent { id, token, key, process_id: "p".into(), session: Some((session, 1)) }
}

#[tokio::test]
async fn a_thousand_parked_runners_cost_no_query() {
    let world = World::new().await;
    let alone = rate(&world).await;
    let agents: Vec<_> = (0..1_000).map(|_| seated(&world)).collect();
    let polls = futures::future::join_all(
        agents.iter().map(|agent| world.poll(agent, 50, json!({"free_slots": 1}))),
    );
    let measured = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let parked = agents.iter().filter(|agent| is_parked(&world, agent)).count();
        let rate = rate(&world).await;
        world.app.dispatch.stop();
        (parked, rate)
    };
    let (answers, (parked, crowded)) = tokio::join!(polls, measured);
    assert_eq!(parked, 1_000);
    assert!(crowded <= alone + 2, "{alone} transactions without them, {crowded} with them");
    for answer in answers {
        assert!(answer.ok()["next"]["delay_ms"].as_u64().unwrap() < 5_000);
    }
}

fn is_parked(world: &World, agent: &Agent) -> bool {
    let desk = world.app.dispatch.desk();
    let session = desk.roster.get(agent.id).and_then(|known| known.session.as_ref());
    session.is_some_and(Session::is_parked)
}

#[tokio::test]
async fn a_poll_is_small() {
    let poll = Poll {
        session_id: SessionId(Ulid::new()),
        generation: 1,
        free_slots: 1,
        ack: vec![],
        running: vec![],
        pressure: None,
        disabled: None,
    };
    assert!(serde_json::to_vec(&poll).unwrap().len() < 200);
}
