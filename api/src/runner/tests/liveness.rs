//! The ladder of silence, thirty times faster.
use std::time::Duration;

use domain::{
    ids::{RunId, StepId},
    job::{Class, JobKind, Origin},
};
use serde_json::json;
use ulid::Ulid;

use super::world::World;
use crate::dispatch::Timing;

fn fast() -> Timing {
    Timing { takeover: Duration::ZERO, ..Timing::faster(60) }
}

#[tokio::test]
async fn unreachable_is_not_dead_and_the_work_goes_on_when_the_runner_is_back() {
    let world = World::with(fast()).await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Apply, Class::Mutating).await;
    let execution = world.running(&agent, job).await;
    world.until("job", job, "job.disconnected").await;
    // Long past the time after which work that is safe to repeat is given up.
    tokio::time::sleep(world.app.dispatch.timing().lost * 2).await;
    assert_eq!(world.story(job).await.last().unwrap(), "disconnected");
    world.until("runner", agent.id, "runner.disconnected").await;
    let running = json!({"running": [{"job": job, "execution": execution, "log_len": 0}]});
    world.poll(&agent, 0, running).await;
    world.until("job", job, "job.reattached").await;
    world.until("runner", agent.id, "runner.returned").await;
    let phase = json!({"type": "phase", "payload": {"name": "apply"}});
    world.report(&agent, job, &execution, 2, phase).await.ok();
}

#[tokio::test]
async fn pure_work_of_a_silent_runner_is_queued_again() {
    let world = World::with(fast()).await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Plan, Class::Pure).await;
    let execution = world.running(&agent, job).await;
    world.until("job", job, "job.requeued").await;
    let phase = json!({"type": "phase", "payload": {"name": "plan"}});
    let late = world.report(&agent, job, &execution, 2, phase).await;
    assert_eq!(late.refused(412, "fenced_out")["job_state"], "queued");
    let offered = world.poll(&agent, 5, json!({})).await.ok();
    assert_eq!(offered["directives"][0]["job"], json!(job));
    assert_eq!(world.claim(&agent, job, "c2").await.ok()["attempt"], 2);
}

#[tokio::test]
async fn who_keeps_calling_keeps_its_lease() {
    let world = World::with(fast()).await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Plan, Class::Pure).await;
    let execution = world.running(&agent, job).await;
    let running = json!({"running": [{"job": job, "execution": execution, "log_len": 0}]});
    for _ in 0..20 {
        world.poll(&agent, 0, running.clone()).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(world.story(job).await, ["queued", "claimed", "started"]);
}

#[tokio::test]
async fn nobody_waits_for_ever_for_a_runner() {
    let world = World::with(fast()).await;
    let install = world.install().await;
    let origin = Origin::Step { install, run: RunId(Ulid::new()), step: StepId(Ulid::new()) };
    let job = world.queue_work(origin, JobKind::Plan, Class::Pure, 100).await;
    world.until("job", job, "job.failed").await;
}

#[tokio::test]
async fn a_log_whose_end_never_comes_is_sealed_without_it() {
    let world = World::with(fast()).await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Plan, Class::Pure).await;
    let execution = world.running(&agent, job).await;
    let last = json!({"type": "finished", "payload": {"outcome": "failed", "exit_code": 1,
        "log_len": 10, "log_sha256": "00".repeat(32)}});
    let waits = world.report(&agent, job, &execution, 2, last).await;
    assert_eq!(waits.status.as_u16(), 202);
    world.until("job", job, "job.log_sealed").await;
    let sealed = world.events("job", job).await.pop().unwrap();
    assert!(sealed.payload.contains(r#""complete":false"#), "{}", sealed.payload);
}

#[tokio::test]
async fn a_log_that_was_open_is_sealed_however_long_no_server_was_there() {
    let seal = Duration::from_millis(300);
    let world = World::with(Timing { seal, ..fast() }).await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Plan, Class::Pure).await;
    let execution = world.running(&agent, job).await;
    let last = json!({"type": "finished", "payload": {"outcome": "failed", "exit_code": 1,
        "log_len": 10, "log_sha256": "00".repeat(32)}});
    world.app.stopping.cancel();
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.report(&agent, job, &execution, 2, last).await;
    tokio::time::sleep(seal * 4).await;
    assert_eq!(world.story(job).await.last().unwrap(), "failed");
    world.restart().await.until("job", job, "job.log_sealed").await;
}

#[tokio::test]
async fn another_server_watches_the_runners_of_one_that_died() {
    let here = World::with(fast()).await;
    let (mut agent, install) = here.agent().await;
    here.open(&mut agent, "j", json!([])).await;
    let job = here.queue(install, JobKind::Plan, Class::Pure).await;
    let there = here.beside().await;
    here.running(&agent, job).await;
    drop(here);
    there.until("job", job, "job.requeued").await;
    there.until("runner", agent.id, "runner.disconnected").await;
    let actor = there.events("job", job).await.pop().unwrap().meta().unwrap().actor;
    assert_eq!(actor.to_string(), "timer:liveness");
}
