//! Tests of suspicious calls that are rejected and recorded.
use axum::{body::Body, http::Request};
use domain::{
    actor::Actor,
    ids::PrincipalId,
    job::{JobClass, JobCommand, JobKind, LossReason, Resolution},
};
use serde_json::{Value, json};
use sha2::Digest as _;
use ulid::Ulid;

use super::world::{Agent, TestResponse, World};

async fn chunk(
    world: &World,
    agent: &Agent,
    job: impl ToString,
    execution: &str,
    text: &str,
) -> TestResponse {
    let digest = sha2::Sha256::digest(text);
    let digest = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, digest);
    let request = Request::patch(format!("/runner/v1/jobs/{}/log", job.to_string()))
        .header("authorization", format!("Bearer {}", agent.token))
        .header("execution", execution)
        .header("content-range", format!("bytes 0-{}/*", text.len() - 1))
        .header("repr-digest", format!("sha-256=:{digest}:"))
        .body(Body::from(text.to_owned()));
    world.send(request.unwrap()).await
}

async fn payloads_of(world: &World, kind: &str, id: impl ToString, name: &str) -> Vec<Value> {
    let events = world.events(kind, id).await;
    let named = events.iter().filter(|event| event.event_type == name);
    named.map(|event| serde_json::from_str(&event.payload).unwrap()).collect()
}

#[tokio::test]
async fn log_divergence_is_rejected_and_recorded_once() {
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await;
    chunk(&world, &agent, job, &execution, "as it was\n").await.ok();
    for _ in 0..3 {
        let response = chunk(&world, &agent, job, &execution, "otherwise\n").await;
        response.rejected(409, "log_divergence");
    }
    let noted = payloads_of(&world, "job", job, "job.log_diverged").await;
    let expected = json!({"type": "log_diverged", "execution": execution, "offset_bytes": 0});
    assert_eq!(noted, [expected]);
    chunk(&world, &agent, job, &execution, "as it was\n").await.ok();
}

#[tokio::test]
async fn result_after_a_resolution_is_recorded_and_changes_nothing() {
    // given work with an unknown outcome that a principal resolved as succeeded
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let execution = world.start_job(&agent, job).await;
    let lost = execution.parse().unwrap();
    let loss_reason = LossReason::ExecutionNotInJournal;
    world.handle(job, JobCommand::DeclareLost { execution: lost, loss_reason }).await;
    let (by, resolution) = (Actor::Principal(PrincipalId(Ulid::new())), Resolution::Succeeded);
    let reason = "seen".into();
    world.handle(job, JobCommand::Resolve { execution: lost, by, resolution, reason }).await;
    let before = world.event_types(job).await;
    // when its runner reports a failure, several times
    let last = json!({"type": "finished", "payload": {"outcome": "failed", "exit_code": 3,
        "reason": "exit_code", "detail": "exit 3", "log_len": 0,
        "log_sha256": hex::encode(sha2::Sha256::digest(""))}});
    for _ in 0..3 {
        let response = world.report(&agent, job, &execution, 2, last.clone()).await;
        assert_eq!(response.rejected(412, "fenced")["job_state"], "succeeded");
    }
    // then the late result is recorded once, and the outcome stands
    let noted = payloads_of(&world, "job", job, "job.late_result_reported").await;
    let expected = json!({"type": "late_result_reported", "execution": execution, "seq": 2,
        "outcome": "failed", "reason": "exit_code", "detail": "[encrypted]", "exit_code": 3});
    let [mut noted] = <[Value; 1]>::try_from(noted).unwrap();
    noted.as_object_mut().unwrap().remove("encrypted");
    assert_eq!(noted, expected);
    assert_eq!(
        world.event_types(job).await,
        [before, vec!["late_result_reported".into()]].concat()
    );
}

#[tokio::test]
async fn forged_reports_are_recorded_for_their_sender_at_a_limited_rate() {
    let world = World::new().await;
    let (mut victim, install) = world.agent().await;
    let (mut stranger, _) = world.agent().await;
    world.open(&mut victim, "j", json!([])).await;
    world.open(&mut stranger, "k", json!([])).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let execution = world.start_job(&victim, job).await;
    let last = json!({"type": "finished", "payload": {"outcome": "failed", "log_len": 0,
        "log_sha256": hex::encode(sha2::Sha256::digest(""))}});
    for _ in 0..20 {
        world.report(&stranger, job, &execution, 2, last.clone()).await.rejected(403, "forbidden");
        chunk(&world, &stranger, job, &execution, "x").await.rejected(403, "forbidden");
    }
    let noted = payloads_of(&world, "runner", stranger.id, "runner.forgery_suspected").await;
    let expected =
        json!({"type": "forgery_suspected", "job": job, "execution": execution, "calls": 1});
    assert_eq!(noted, [expected]);
    assert_eq!(payloads_of(&world, "runner", victim.id, "runner.forgery_suspected").await.len(), 0);
    assert_eq!(world.event_types(job).await, ["queued", "claimed", "started"]);
}

#[tokio::test]
async fn ended_job_rejects_reports_of_another_runner() {
    // given a build by one runner, and another build runner
    let world = World::new().await;
    let build = domain::enrolment::Purpose::Build;
    let (mut one, mut other) = (world.enrolled(build).await, world.enrolled(build).await);
    world.open(&mut one, "j", json!([])).await;
    world.open(&mut other, "k", json!([])).await;
    let job = world.queue_build().await;
    let execution = world.start_job(&one, job).await;
    let last = json!({"type": "finished", "payload": {"outcome": "failed", "log_len": 0,
        "log_sha256": hex::encode(sha2::Sha256::digest(""))}});
    world.report(&one, job, &execution, 2, last.clone()).await.ok();
    let before = world.event_types(job).await;
    // when the other runner reports for the execution that ended the job
    world.report(&other, job, &execution, 3, last).await.rejected(403, "forbidden");
    chunk(&world, &other, job, &execution, "x").await.rejected(403, "forbidden");
    // then the job is unchanged
    assert_eq!(world.event_types(job).await, before);
    let noted = payloads_of(&world, "runner", other.id, "runner.forgery_suspected").await;
    assert_eq!(noted.len(), 1);
}
