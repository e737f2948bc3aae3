//! Tests of lost responses, late reports and concurrent calls.
use axum::{body::Body, http::Request};
use domain::{
    actor::Actor,
    enrolment::Purpose,
    ids::{ExecutionId, JobId},
    job::{Job, JobClass, JobCommand, JobKind, LossReason, Resolution},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::world::{Agent, TestResponse, World};

fn person() -> Actor {
    "prn_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap()
}

fn finished(outcome: &str) -> Value {
    let sha256 = hex::encode(Sha256::digest(b""));
    json!({"type": "finished", "payload":
        {"outcome": outcome, "log_len": 0, "log_sha256": sha256}})
}

async fn ready(world: &World) -> (Agent, domain::ids::InstallId) {
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    (agent, install)
}

async fn chunk(world: &World, agent: &Agent, job: JobId, execution: &str) -> TestResponse {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let request = Request::patch(format!("/runner/v1/jobs/{job}/log"))
        .header("authorization", format!("Bearer {}", agent.token))
        .header("execution", execution)
        .header("content-range", "bytes 0-0/*")
        .header("repr-digest", format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(b"x"))))
        .body(Body::from("x"));
    world.send(request.unwrap()).await
}

#[tokio::test]
async fn repeated_calls_after_a_restart_return_the_committed_result() {
    // given a server that stops after each commit, before its response arrives
    let world = World::new().await;
    let (agent, install) = ready(&world).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let first = world.claim(&agent, job, "c1").await.ok();
    let world = world.restart().await;
    // when every call is repeated, then no event is recorded twice
    let again = world.claim(&agent, job, "c1").await.ok();
    for same in ["execution", "attempt", "deadline", "manifest", "grant"] {
        assert_eq!(first[same], again[same], "{same}");
    }
    let execution = first["execution"].as_str().unwrap().to_string();
    let started = json!({"type": "started", "payload": {}});
    world.report(&agent, job, &execution, 1, started.clone()).await.ok();
    let world = world.restart().await;
    world.report(&agent, job, &execution, 1, started).await.ok();
    world.report(&agent, job, &execution, 2, finished("succeeded")).await.ok();
    let world = world.restart().await;
    let response = world.report(&agent, job, &execution, 2, finished("succeeded")).await;
    assert_eq!(response.status.as_u16(), 200);
    let events = ["queued", "claimed", "started", "succeeded", "log_finalized"];
    assert_eq!(world.event_types(job).await, events);
}

#[tokio::test]
async fn superseded_runner_changes_nothing() {
    // given a runner that was suspended, and another one that holds its job now
    let world = World::new().await;
    let mut zombie = world.enrolled(Purpose::Build).await;
    let mut other = world.enrolled(Purpose::Build).await;
    world.open(&mut zombie, "j", json!([])).await;
    world.open(&mut other, "k", json!([])).await;
    let job = world.queue_build().await;
    let former = world.start_job(&zombie, job).await;
    let (execution, loss_reason) = (former.parse().unwrap(), LossReason::ExecutionNotInJournal);
    world.handle(job, JobCommand::DeclareLost { execution, loss_reason }).await;
    let current = world.start_job(&other, job).await;
    let before = world.event_types(job).await;
    // when the suspended runner resumes, then each of its calls is rejected with the state of the
    // job
    let phase = json!({"type": "phase", "payload": {"name": "mine"}});
    for body in [phase, finished("succeeded")] {
        let refused = world.report(&zombie, job, &former, 2, body).await.rejected(412, "fenced");
        assert_eq!(refused["job_state"], "running");
    }
    chunk(&world, &zombie, job, &former).await.rejected(412, "fenced");
    // Its result is recorded, and the job continues with the other runner.
    assert_eq!(
        world.event_types(job).await,
        [before, vec!["late_result_reported".into()]].concat()
    );
    chunk(&world, &other, job, &current).await.ok();
}

#[tokio::test]
async fn late_result_does_not_change_the_outcome() {
    // given work with an unknown outcome that a principal resolved as failed
    let world = World::new().await;
    let (agent, install) = ready(&world).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let named = world.start_job(&agent, job).await;
    let execution: ExecutionId = named.parse().unwrap();
    let loss_reason = LossReason::ExecutionNotInJournal;
    world.handle(job, JobCommand::DeclareLost { execution, loss_reason }).await;
    let (by, resolution, reason) = (person(), Resolution::Failed, "looked".to_string());
    world.handle(job, JobCommand::Resolve { execution, by, resolution, reason }).await;
    let before = world.event_types(job).await;
    // when its runner reports another result later
    let late = world.report(&agent, job, &named, 2, finished("succeeded")).await;
    // then the result is recorded and the outcome stands
    assert_eq!(late.rejected(412, "fenced")["job_state"], "failed");
    assert_eq!(
        world.event_types(job).await,
        [before, vec!["late_result_reported".into()]].concat()
    );
}

/// Requests a cancellation that may be too late.
async fn cancel(world: &World, job: JobId) {
    let call = &World::system();
    let requested = world.app.engine.transact(call, move |unit| {
        let reason = "wrong".to_string();
        let command = JobCommand::RequestCancel { by: person(), reason, force: false };
        Box::pin(async move { unit.try_handle::<Job>(job, command).await.map(|_| ()) })
    });
    requested.await.unwrap();
}

#[tokio::test]
async fn concurrent_cancellation_is_ordered_with_claim_and_result() {
    let world = World::new().await;
    let (agent, install) = ready(&world).await;
    for turn in 0..10 {
        // given a concurrent cancellation and claim
        let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
        let claim_id = format!("c{turn}");
        let (claimed, ()) = tokio::join!(world.claim(&agent, job, &claim_id), cancel(&world, job));
        // then the runner has the job and receives the cancellation, or the claim fails
        if claimed.status.as_u16() != 200 {
            claimed.rejected(410, "cancelled");
            assert_eq!(world.event_types(job).await, ["queued", "cancel_requested", "cancelled"]);
            continue;
        }
        assert_eq!(world.event_types(job).await, ["queued", "claimed", "cancel_requested"]);
        let execution = claimed.json()["execution"].as_str().unwrap().to_string();
        world.report(&agent, job, &execution, 1, finished("cancelled")).await.ok();
    }
    for turn in 0..10 {
        // given a concurrent cancellation and final report
        let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
        let claimed = world.claim(&agent, job, &format!("d{turn}")).await.ok();
        let execution = claimed["execution"].as_str().unwrap().to_string();
        let started = json!({"type": "started", "payload": {}});
        world.report(&agent, job, &execution, 1, started).await.ok();
        let (response, ()) = tokio::join!(
            world.report(&agent, job, &execution, 2, finished("succeeded")),
            cancel(&world, job)
        );
        // then the reported result stands and is recorded once
        response.ok();
        let events = world.event_types(job).await;
        let ends = events.iter().filter(|event| *event == "succeeded" || *event == "cancelled");
        assert_eq!(ends.collect::<Vec<_>>(), ["succeeded"], "{events:?}");
    }
}

#[tokio::test]
async fn runner_with_a_full_disk_gets_no_offers() {
    // given a runner with a running job, and a queued job for it
    let world = World::new().await;
    let (agent, install) = ready(&world).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await;
    let next = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    // when it reports a full disk
    let poll = async |disk_free: u64| {
        let running = json!([{"job": job, "execution": execution, "log_len": 0}]);
        let pressure = json!({"spool_bytes": 9, "disk_free": disk_free});
        world.poll(&agent, 1, json!({"running": running, "pressure": pressure})).await
    };
    // then it gets no offer, and its reports are accepted
    assert_eq!(poll(64 * 1024 * 1024 - 1).await.status, 204);
    chunk(&world, &agent, job, &execution).await.ok();
    // and once there is space it is offered the queued job
    let offered = poll(64 * 1024 * 1024).await.ok();
    assert_eq!(offered["directives"][0]["job"], json!(next));
}
