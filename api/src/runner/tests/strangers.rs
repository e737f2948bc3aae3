//! Tests that ids of another runner's jobs give no access. Ids appear in logs and URLs, so they are
//! not secret.
use std::time::Duration;

use axum::{body::Body, http::Method};
use domain::{
    enrolment::Purpose,
    ids::SessionId,
    job::{JobClass, JobKind},
};
use serde_json::json;
use ulid::Ulid;

use super::world::World;
use crate::dispatch::Timing;

#[tokio::test]
async fn runner_does_not_keep_the_job_of_another_runner_alive() {
    // given a runner that holds a job and disconnects, and a runner of another tenant
    let world = World::with(Timing { takeover: Duration::ZERO, ..Timing::faster(60) }).await;
    let (mut victim, install) = world.agent().await;
    let (mut stranger, _) = world.agent().await;
    world.open(&mut victim, "j", json!([])).await;
    world.open(&mut stranger, "k", json!([])).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let execution = world.start_job(&victim, job).await;
    // when the other runner names the execution in every call that accepts one
    let running = json!({"running": [{"job": job, "execution": execution, "log_len": 0}]});
    let phase = json!({"type": "phase", "payload": {"name": "mine"}});
    for turn in 0..25 {
        let polled = world.poll(&stranger, 0, running.clone()).await;
        assert_eq!(polled.status.as_u16(), 204, "it is told of no lease");
        let response = world.report(&stranger, job, &execution, 2 + turn, phase.clone()).await;
        response.rejected(403, "forbidden");
        let request = axum::http::Request::patch(format!("/runner/v1/jobs/{job}/log"))
            .header("authorization", format!("Bearer {}", stranger.token))
            .header("execution", &execution)
            .header("content-range", "bytes 0-0/*")
            .body(Body::from("x"));
        world.send(request.unwrap()).await.rejected(403, "forbidden");
        world.claim(&stranger, job, "c1").await.rejected(403, "not_offered");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // then the disconnect is recorded nevertheless, and nothing else changed
    assert_eq!(world.event_types(job).await, ["queued", "claimed", "started", "disconnected"]);
    // and the other runner can close only its own session
    let path = format!("/runner/v1/sessions/{}", victim.session.unwrap().0);
    world.call(Method::DELETE, &path, &stranger.token, &json!({})).await.ok();
    let held = world.app.dispatch.session_of(victim.id);
    assert_eq!(held, victim.session.map(|(session, _)| session));
}

#[tokio::test]
async fn one_of_two_concurrent_claims_wins() {
    let world = World::new().await;
    let mut agents = vec![];
    for _ in 0..2 {
        let mut agent = world.enrolled(Purpose::Build).await;
        world.open(&mut agent, "j", json!([])).await;
        agents.push(agent);
    }
    for _ in 0..10 {
        let job = world.queue_build().await;
        let (one, other) =
            tokio::join!(world.claim(&agents[0], job, "a"), world.claim(&agents[1], job, "b"));
        let (winner, loser) = if one.status == 200 { (one, other) } else { (other, one) };
        winner.ok();
        loser.rejected(409, "claimed_by_other");
        assert_eq!(world.event_types(job).await, ["queued", "claimed"]);
    }
}

#[tokio::test]
async fn session_gets_only_jobs_of_its_kinds() {
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    let session = SessionId(Ulid::new());
    let assertion = world.opening(&agent, session, ("boot", "j"));
    let body = json!({"assertion": assertion, "pid": 1, "version": "1.0.0", "slots": 1,
        "protocol": {"min": 1, "max": 1}, "capabilities": ["plan"]});
    let response = world.call(Method::POST, "/runner/v1/sessions", "", &body).await.ok();
    agent.session = Some((session, response["generation"].as_u64().unwrap()));
    agent.token = response["access_token"].as_str().unwrap().to_string();
    let apply = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let plan = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    while world.app.dispatch.accepts(agent.id, plan).is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.claim(&agent, apply, "c1").await.rejected(403, "not_offered");
    world.claim(&agent, plan, "c2").await.ok();
}
