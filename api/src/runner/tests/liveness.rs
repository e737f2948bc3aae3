//! Tests of liveness transitions, with timeouts sixty times shorter than the defaults.
use std::time::Duration;

use axum::http::Method;
use domain::{
    decider::Timestamp,
    ids::{RunId, RunnerId, StepId},
    job::{JobClass, JobCommand, JobKind, LossReason, Origin},
};
use projections::views::runners;
use serde_json::json;
use ulid::Ulid;

use super::world::World;
use crate::dispatch::Timing;

fn fast() -> Timing {
    Timing { takeover: Duration::ZERO, ..Timing::faster(60) }
}

#[tokio::test]
async fn disconnected_mutating_work_is_reattached() {
    let world = World::with(fast()).await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let execution = world.start_job(&agent, job).await;
    world.wait_for_event("job", job, "job.disconnected").await;
    // Longer than the time after which pure work is declared lost.
    tokio::time::sleep(world.app.dispatch.timing().lost * 2).await;
    assert_eq!(world.event_types(job).await.last().unwrap(), "disconnected");
    world.wait_for_event("runner", agent.id, "runner.disconnected").await;
    let running = json!({"running": [{"job": job, "execution": execution, "log_len": 0}]});
    world.poll(&agent, 0, running).await;
    world.wait_for_event("job", job, "job.reattached").await;
    world.wait_for_event("runner", agent.id, "runner.reconnected").await;
    let phase = json!({"type": "phase", "payload": {"name": "apply"}});
    world.report(&agent, job, &execution, 2, phase).await.ok();
}

#[tokio::test]
async fn pure_work_of_a_disconnected_runner_is_queued_again() {
    let world = World::with(fast()).await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await;
    world.wait_for_event("job", job, "job.requeued").await;
    let phase = json!({"type": "phase", "payload": {"name": "plan"}});
    let late = world.report(&agent, job, &execution, 2, phase).await;
    assert_eq!(late.rejected(412, "fenced")["job_state"], "queued");
    let offered = world.poll(&agent, 5, json!({})).await.ok();
    assert_eq!(offered["directives"][0]["job"], json!(job));
    assert_eq!(world.claim(&agent, job, "c2").await.ok()["attempt"], 2);
}

#[tokio::test]
async fn runner_that_polls_keeps_its_lease() {
    let world = World::with(fast()).await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await;
    let running = json!({"running": [{"job": job, "execution": execution, "log_len": 0}]});
    for _ in 0..20 {
        world.poll(&agent, 0, running.clone()).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(world.event_types(job).await, ["queued", "claimed", "started"]);
}

#[tokio::test]
async fn queued_job_without_a_runner_fails() {
    let world = World::with(fast()).await;
    let install = world.install().await;
    let origin = Origin::Step { install, run: RunId(Ulid::new()), step: StepId(Ulid::new()) };
    let job = world.queue_work(origin, JobKind::Plan, JobClass::Pure, 100).await;
    world.wait_for_event("job", job, "job.failed").await;
}

#[tokio::test]
async fn log_without_its_end_is_finalized_as_incomplete() {
    let world = World::with(fast()).await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await;
    let last = json!({"type": "finished", "payload": {"outcome": "failed", "exit_code": 1,
        "log_len": 10, "log_sha256": "00".repeat(32)}});
    let waits = world.report(&agent, job, &execution, 2, last).await;
    assert_eq!(waits.status.as_u16(), 202);
    world.wait_for_event("job", job, "job.log_finalized").await;
    let finalized = world.events("job", job).await.pop().unwrap();
    assert!(finalized.payload.contains(r#""complete":false"#), "{}", finalized.payload);
}

#[tokio::test]
async fn open_log_is_finalized_after_a_long_downtime() {
    let log_quiet = Duration::from_millis(300);
    let world = World::with(Timing { log_quiet, ..fast() }).await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await;
    let last = json!({"type": "finished", "payload": {"outcome": "failed", "exit_code": 1,
        "log_len": 10, "log_sha256": "00".repeat(32)}});
    world.app.stopping.cancel();
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.report(&agent, job, &execution, 2, last).await;
    tokio::time::sleep(log_quiet * 4).await;
    assert_eq!(world.event_types(job).await.last().unwrap(), "failed");
    world.restart().await.wait_for_event("job", job, "job.log_finalized").await;
}

#[tokio::test]
async fn requeued_job_with_an_open_log_keeps_its_place_in_the_queue_after_a_restart() {
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await.parse().unwrap();
    let loss_reason = LossReason::ExecutionNotInJournal;
    world.handle(job, JobCommand::DeclareLost { execution, loss_reason }).await;
    world.wait_for_event("job", job, "job.requeued").await;
    let requeued = world.events("job", job).await.pop().unwrap();
    let world = world.restart().await;
    let state = world.app.dispatch.state();
    let tracked = state.jobs.get(job).unwrap();
    assert_eq!((tracked.order, tracked.queued_at), (requeued.position, requeued.recorded_at));
    assert_eq!(tracked.open_logs.len(), 1);
}

#[tokio::test]
async fn another_server_takes_over_the_runners_of_a_stopped_one() {
    let first = World::with(fast()).await;
    let (mut agent, install) = first.agent().await;
    first.open(&mut agent, "j", json!([])).await;
    let job = first.queue(install, JobKind::Plan, JobClass::Pure).await;
    let second = first.second_server().await;
    first.start_job(&agent, job).await;
    drop(first);
    second.wait_for_event("job", job, "job.requeued").await;
    second.wait_for_event("runner", agent.id, "runner.disconnected").await;
    let actor = second.events("job", job).await.pop().unwrap().meta().unwrap().actor;
    assert_eq!(actor.to_string(), "timer:liveness");
}

#[tokio::test]
async fn failed_takeover_is_retried_and_delays_no_other() {
    // given four runners of one server, each with work; that server declares none of them lost
    // during the test
    let first = World::new().await;
    let mut work = vec![];
    for _ in 0..4 {
        let (mut agent, install) = first.agent().await;
        first.open(&mut agent, "j", json!([])).await;
        let job = first.queue(install, JobKind::Plan, JobClass::Pure).await;
        first.start_job(&agent, job).await;
        work.push((agent.id, job));
    }
    let second = first.second_server_with(fast()).await;
    let pool = second.app.pool.clone();
    let execute = async |sql: String| sqlx::raw_sql(&sql).execute(&pool).await.unwrap();
    // when the row of the first runner cannot be written, and the stream of the second runner
    // cannot be read
    execute(format!(
        "create function fail() returns trigger language plpgsql as \
           $$ begin raise exception 'injected failure'; end $$; \
         create trigger fail before update on runner_session for each row \
           when (new.runner = '{}' and new.server <> old.server) execute function fail()",
        work[0].0
    ))
    .await;
    let version = |to: &str, runner| {
        let which = format!("aggregate_id = '{runner}' and event_type = 'runner.enrolled'");
        format!("update log_event set event_version = '{to}' where {which}")
    };
    execute(version("99", work[1].0)).await;
    // and their server stops
    drop(first);
    execute("update log_consumer set lease_until = now() where name = 'server/here'".into()).await;
    // then another server takes over the other two runners
    for (runner, job) in &work[2..] {
        second.wait_for_event("job", job, "job.requeued").await;
        second.wait_for_event("runner", runner, "runner.disconnected").await;
    }
    for (_, job) in &work[..2] {
        assert_eq!(second.event_types(*job).await.last().unwrap(), "started");
    }
    // when the faults are removed, then the server takes over the first two runners as well
    execute("drop trigger fail on runner_session".into()).await;
    execute(version("1", work[1].0)).await;
    for (_, job) in &work[..2] {
        second.wait_for_event("job", job, "job.requeued").await;
    }
}

/// State of the runner in the projection, once the projection has processed the last event.
async fn state_of(world: &World, runner: RunnerId) -> (&'static str, Option<Timestamp>) {
    let position = world.app.engine.log().position();
    world.app.projections.wait_for(position, Duration::from_secs(10)).await.unwrap();
    let row = runners::runner(&world.app.pool, runner).await.unwrap().unwrap();
    (row.state_name(), row.state.disconnected_since)
}

#[tokio::test]
async fn runner_is_stopped_after_closing_its_session_and_active_after_opening_one() {
    let world = World::new().await;
    let (mut agent, _) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    world.poll(&agent, 0, json!({})).await;
    let contact = world.app.dispatch.contact(agent.id).unwrap();
    assert!(contact.online && contact.last.is_some(), "{contact:?}");
    assert_eq!(state_of(&world, agent.id).await, ("active", None));
    let path = format!("/runner/v1/sessions/{}", agent.session.unwrap().0);
    world.call(Method::DELETE, &path, &agent.token, &json!({})).await.ok();
    let (state, since) = state_of(&world, agent.id).await;
    assert_eq!((state, since.is_some()), ("stopped", true));
    assert_eq!(world.app.dispatch.contact(agent.id), None);
    assert_eq!(world.app.dispatch.census().sessions, 0);
    world.open(&mut agent, "j", json!([])).await;
    world.wait_for_event("runner", agent.id, "runner.reconnected").await;
    assert_eq!(state_of(&world, agent.id).await, ("active", None));
}

#[tokio::test]
async fn runner_can_close_its_session_at_another_server() {
    let first = World::new().await;
    let (mut agent, _) = first.agent().await;
    first.open(&mut agent, "j", json!([])).await;
    let second = first.second_server().await;
    let path = format!("/runner/v1/sessions/{}", agent.session.unwrap().0);
    second.call(Method::DELETE, &path, &agent.token, &json!({})).await.ok();
    assert_eq!(state_of(&second, agent.id).await.0, "stopped");
    // Closing a superseded session does not stop the runner.
    let former = agent.clone();
    second.open(&mut agent, "j", json!([])).await;
    let path = format!("/runner/v1/sessions/{}", former.session.unwrap().0);
    let response = second.call(Method::DELETE, &path, &former.token, &json!({})).await;
    response.rejected(409, "session_superseded");
    second.wait_for_event("runner", agent.id, "runner.reconnected").await;
    assert_eq!(state_of(&second, agent.id).await.0, "active");
}

#[tokio::test]
async fn killed_runner_does_not_count_as_a_session_after_its_lease() {
    let world = World::with(fast()).await;
    let (mut agent, _) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    world.poll(&agent, 0, json!({})).await;
    for _ in 0..400 {
        if world.app.dispatch.census().sessions == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(world.app.dispatch.census().sessions, 0);
    // After its next call, the session counts again.
    world.poll(&agent, 0, json!({})).await;
    assert_eq!(world.app.dispatch.census().sessions, 1);
}
