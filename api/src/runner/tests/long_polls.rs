//! Tests that long polls cause no query.
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use domain::{
    ids::{InstallId, RunnerId, SessionId},
    job::JobKind,
    runner::{Host, Identity, Runner, RunnerMode},
};
use schemas::runner::Poll;
use serde_json::json;
use tracing::{
    Event, Metadata, Subscriber,
    instrument::WithSubscriber as _,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
};
use ulid::Ulid;

use super::world::{Agent, World};
use crate::dispatch::Session;

/// Counts the SQL statements of the futures that run with this subscriber, and ignores other
/// activity on the database.
#[derive(Clone, Default)]
struct Statements(Arc<AtomicUsize>);

impl Statements {
    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Subscriber for Statements {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, SeqCst);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Adds a runner with a session to the dispatch state, but not to the database.
fn seated(world: &World) -> Agent {
    let (id, install) = (RunnerId(Ulid::new()), InstallId(Ulid::new()));
    let identity = Identity {
        mode: RunnerMode::Install,
        install: Some(install),
        identity_key: "00".repeat(32),
        install_keys: None,
        version: "1".into(),
        host: Host { os: "linux".into(), arch: "x86_64".into(), hostname: None },
        enrolment: domain::ids::TokenId(Ulid::new()),
    };
    let runner = Runner { identity: Some(identity), ..Runner::default() };
    let now = world.app.dispatch.moment().instant;
    let session = SessionId(Ulid::new());
    let mut dispatch_state = world.app.dispatch.state();
    dispatch_state.runners.meet(id, runner, 1, now);
    let capabilities = vec![JobKind::Plan];
    dispatch_state.open_session(
        id,
        Session { capabilities, slots: 1, ..Session::new(session, 1, 1) },
        now,
    );
    let (mode, moment) = (RunnerMode::Install, world.app.now());
    let token = world.app.tokens.access(id, (mode, Some(install)), 1, moment).unwrap();
    let key = ed25519_dalek::SigningKey::from_bytes(&[1; 32]);
    Agent { id, token, key, process_id: "p".into(), session: Some((session, 1)) }
}

#[tokio::test]
async fn thousand_long_polls_cause_no_query() {
    let (of_polls, of_loops) = (Statements::default(), Statements::default());
    let world = World::new().with_subscriber(of_loops.clone()).await;
    let control = sqlx::query("select 1").execute(&world.app.pool);
    control.with_subscriber(of_polls.clone()).await.unwrap();
    assert_eq!(of_polls.count(), 1, "a statement is counted");
    let position = world.app.engine.log().position();
    let agents: Vec<_> = (0..1_000).map(|_| seated(&world)).collect();
    let polls = futures::future::join_all(
        agents.iter().map(|agent| world.poll(agent, 50, json!({"free_slots": 1}))),
    );
    let measured = async {
        while !agents.iter().all(|agent| is_parked(&world, agent)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The timeout loop checks all runners once a second.
        let before = of_loops.count();
        tokio::time::sleep(world.app.dispatch.timing().tick * 3).await;
        let loops = of_loops.count() - before;
        world.app.dispatch.stop();
        loops
    };
    let (responses, loops) = tokio::join!(polls.with_subscriber(of_polls.clone()), measured);
    assert_eq!(of_polls.count(), 1, "the polls made statements");
    assert_eq!(world.app.engine.log().position(), position, "the polls wrote events");
    // The remaining statements come from periodic server loops. Their number must not depend on the
    // number of waiting runners.
    assert!(loops < 100, "the loops made {loops} statements for a thousand runners");
    for response in responses {
        assert!(response.ok()["next"]["delay_ms"].as_u64().unwrap() < 5_000);
    }
}

fn is_parked(world: &World, agent: &Agent) -> bool {
    let dispatch_state = world.app.dispatch.state();
    let session = dispatch_state.runners.get(agent.id).and_then(|known| known.session.as_ref());
    session.is_some_and(Session::has_long_poll)
}

#[tokio::test]
async fn poll_request_is_smaller_than_200_bytes() {
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
