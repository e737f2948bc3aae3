//! Tests of the encrypted state of components: order, fencing, permissions, limits and erasure.
use std::time::Duration;

use axum::{
    body::Body,
    http::{Method, Request},
};
use domain::{
    actor::Actor,
    enrolment::Purpose,
    ids::{InstallId, JobId, RunId, StepId},
    install::{Install, InstallCommand},
    job::{JobCommand, JobKind, LossReason, Origin, Resolution, Work},
    state_version::StateVersion,
};
use event_log::blob;
use schemas::{
    manifest::Fence,
    runner::{StateHead, StateUpload},
    token::JobClaims,
};
use serde_json::{Value, json};
use ulid::Ulid;

use super::{
    identity::revoke,
    world::{Agent, TestResponse, World},
};
use crate::state_versions::{self, Of};

#[cfg(feature = "fault-injection")]
mod faults;
mod limits;
mod recovery;

/// Running job of the component `web`.
struct Running {
    job: JobId,
    execution: String,
    token: String,
    fence: Fence,
}

async fn queue_with(world: &World, install: InstallId, kind: JobKind, inputs: Value) -> JobId {
    let (job, run, step) = (JobId(Ulid::new()), RunId(Ulid::new()), StepId(Ulid::new()));
    let class = kind.class();
    let manifest = json!({
        "version": 1, "job": job, "kind": kind, "class": class,
        "plugin": {"name": "terraform_module", "version": "1"},
        "inputs": inputs,
        "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
    });
    let manifest = blob::put(&world.app.pool, manifest.to_string().as_bytes()).await.unwrap();
    let origin = match kind {
        JobKind::Preflight => Origin::Preflight { install, run },
        JobKind::Resolve
        | JobKind::Build
        | JobKind::Plan
        | JobKind::Apply
        | JobKind::Sync
        | JobKind::Action => Origin::Step { install, run, step },
    };
    let (deadline_ms, queue_ttl_ms) = (3_600_000, 60_000);
    let work = Work { kind, class, attempts: 2, manifest, origin, deadline_ms, queue_ttl_ms };
    world.handle(job, JobCommand::Queue(work)).await;
    job
}

async fn run(world: &World, agent: &Agent, install: InstallId, component: &str) -> Running {
    run_with(world, agent, install, json!({"component": component})).await
}

async fn run_with(world: &World, agent: &Agent, install: InstallId, inputs: Value) -> Running {
    run_kind(world, agent, install, JobKind::Apply, inputs).await
}

async fn run_kind(
    world: &World,
    agent: &Agent,
    install: InstallId,
    kind: JobKind,
    inputs: Value,
) -> Running {
    let job = queue_with(world, install, kind, inputs).await;
    let claimed = world.claim(agent, job, &Ulid::new().to_string()).await.ok();
    let token = claimed["job_token"].as_str().unwrap().to_owned();
    let JobClaims { fence, .. } = world.app.tokens.read_job(&token, world.app.now()).unwrap();
    let execution = claimed["execution"].as_str().unwrap().to_owned();
    let started = json!({"type": "started", "payload": {}});
    world.report(agent, job, &execution, 1, started).await.ok();
    Running { job, execution, token, fence }
}

/// Ends the job with an unknown outcome, as after the loss of its host.
async fn end(world: &World, running: &Running) {
    lose(world, running).await;
    resolve(world, running).await;
}

async fn lose(world: &World, running: &Running) {
    let execution = running.execution.parse().unwrap();
    let loss_reason = LossReason::ExecutionNotInJournal;
    world.handle(running.job, JobCommand::DeclareLost { execution, loss_reason }).await;
}

async fn resolve(world: &World, running: &Running) {
    let execution = running.execution.parse().unwrap();
    let (by, resolution) = (Actor::System, Resolution::Failed);
    let reason = "lost".to_owned();
    let resolve = JobCommand::Resolve { execution, by, resolution, reason };
    world.handle(running.job, resolve).await;
}

async fn world() -> (World, Agent, InstallId) {
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    (world, agent, install)
}

fn digest(content: &str) -> String {
    let digest = blob::digest(content.as_bytes()).unwrap().to_string();
    digest.replace("sha256:", "hmac-sha256:1:")
}

fn head(fence: Fence, serial: u64, content: &str) -> StateHead {
    StateHead { lineage: "l".into(), serial, fence, digest: digest(content), is_empty: false }
}

fn by_job(head: StateHead) -> StateUpload {
    StateUpload { head, written_by: None, is_decided: false }
}

async fn put_bytes(world: &World, token: &str, upload: &StateUpload, body: Body) -> TestResponse {
    put_bytes_to(world, "web", token, upload, body).await
}

async fn put_bytes_to(
    world: &World,
    component: &str,
    token: &str,
    upload: &StateUpload,
    body: Body,
) -> TestResponse {
    let request = Request::builder()
        .method(Method::PUT)
        .uri(format!("/runner/v1/state/{component}"))
        .header("authorization", format!("Bearer {token}"))
        .header("state-version", serde_json::to_string(upload).unwrap());
    world.send(request.body(body).unwrap()).await
}

async fn put_to(
    world: &World,
    component: &str,
    token: &str,
    upload: &StateUpload,
    content: &str,
) -> TestResponse {
    put_bytes_to(world, component, token, upload, Body::from(content.to_owned())).await
}

async fn put(world: &World, token: &str, upload: &StateUpload, content: &str) -> TestResponse {
    put_bytes(world, token, upload, Body::from(content.to_owned())).await
}

async fn get(world: &World, token: &str, path: &str) -> TestResponse {
    world.call(Method::GET, path, token, &json!({})).await
}

/// Records a version of `web` in the log, as at the end of a job.
async fn record(world: &World, install: InstallId, serial: u64) {
    let (run, step) = (RunId(Ulid::new()), StepId(Ulid::new()));
    let version = StateVersion { lineage: "l".into(), serial, digest: None };
    let record = InstallCommand::RecordState { name: "web".into(), run, step, state: version };
    let call = &World::system();
    let done = world
        .app
        .engine
        .transact(call, move |unit| Box::pin(unit.handle::<Install>(install, record.clone())));
    done.await.unwrap();
}

/// Serials in the database, the oldest first.
async fn serials(world: &World) -> Vec<i64> {
    let serials = "select serial from state_version order by number";
    sqlx::query_scalar(serials).fetch_all(&world.app.pool).await.unwrap()
}

async fn newest(world: &World, install: InstallId) -> Option<StateHead> {
    let of = Of { install, component: "web" };
    state_versions::newest(&world.app.pool, of).await.unwrap()
}

#[tokio::test]
async fn a_running_job_stores_and_reads_versions_in_order() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    let path = "/runner/v1/state/web";
    assert_eq!(get(&world, &held.token, path).await.status, 204);
    for (serial, content) in [(1, "one"), (2, "two"), (2, "two"), (5, "five")] {
        let upload = by_job(head(held.fence, serial, content));
        let stored = put(&world, &held.token, &upload, content).await.ok();
        assert_eq!(stored["serial"], serial);
    }
    let read = get(&world, &held.token, path).await;
    assert_eq!((read.status.as_u16(), &read.bytes[..]), (200, &b"five"[..]));
    let read: StateHead =
        serde_json::from_str(read.headers["state-version"].to_str().unwrap()).unwrap();
    assert_eq!(read, head(held.fence, 5, "five"));
    let older = get(&world, &held.token, &format!("{path}?lineage=l&serial=2")).await;
    assert_eq!(&older.bytes[..], b"two");
    let absent = get(&world, &agent.token, &format!("{path}?lineage=l&serial=3")).await;
    assert_eq!(absent.status, 204);
    get(&world, &held.token, &format!("{path}?lineage=l")).await.rejected(400, "bad_request");
    // The same serial with other content, an older serial and another lineage are conflicts.
    let mut other = head(held.fence, 9, "nine");
    other.lineage = "m".into();
    let conflicts = [
        (head(held.fence, 5, "other"), "another state with serial 5"),
        (head(held.fence, 4, "four"), "later serial 5"),
        (other, "has lineage l and is not empty"),
    ];
    for (head, why) in conflicts {
        let conflict = put(&world, &held.token, &by_job(head), "x").await;
        let detail = conflict.rejected(409, "state_conflict")["detail"].to_string();
        assert!(detail.contains(why), "{detail}");
    }
    assert_eq!(newest(&world, install).await.unwrap().serial, 5);
}

#[tokio::test]
async fn a_caller_that_has_the_newest_state_gets_no_body() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    put(&world, &held.token, &by_job(head(held.fence, 1, "one")), "one").await.ok();
    for (known, status) in [("one", 304), ("two", 200)] {
        let request = Request::get("/runner/v1/state/web")
            .header("authorization", format!("Bearer {}", held.token))
            .header("if-none-match", format!("\"{}\"", digest(known)));
        let response = world.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status.as_u16(), status);
        assert_eq!(response.bytes.is_empty(), status == 304);
        assert!(response.headers.contains_key("state-version"));
    }
}

#[tokio::test]
async fn a_job_of_a_former_claim_or_of_another_component_cannot_store() {
    let (world, agent, install) = world().await;
    let former = run(&world, &agent, install, "web").await;
    put(&world, &former.token, &by_job(head(former.fence, 1, "one")), "one").await.ok();
    let other = run(&world, &agent, install, "db").await;
    let upload = by_job(head(other.fence, 2, "two"));
    put(&world, &other.token, &upload, "two").await.rejected(403, "forbidden");
    get(&world, &other.token, "/runner/v1/state/web").await.rejected(403, "forbidden");
    // The token names the fence.
    let upload = by_job(head(other.fence, 2, "two"));
    put(&world, &former.token, &upload, "two").await.rejected(412, "fenced");
    end(&world, &former).await;
    let upload = by_job(head(former.fence, 2, "two"));
    put(&world, &former.token, &upload, "two").await.rejected(412, "fenced");
    get(&world, &former.token, "/runner/v1/state/web").await.rejected(412, "fenced");
    assert_eq!(newest(&world, install).await.unwrap().serial, 1);
}

#[tokio::test]
async fn a_job_reads_the_states_that_its_manifest_names_and_writes_its_own_only() {
    let (world, agent, install) = world().await;
    for component in ["web", "sandbox"] {
        let held = run(&world, &agent, install, component).await;
        let upload = by_job(head(held.fence, 1, component));
        put_to(&world, component, &held.token, &upload, component).await.ok();
        end(&world, &held).await;
    }
    let inputs = json!({"component": "chart", "cluster": {"component": "web", "required": true}});
    let chart = run_with(&world, &agent, install, inputs).await;
    for component in ["web", "sandbox"] {
        let path = format!("/runner/v1/state/{component}");
        let read = get(&world, &chart.token, &path).await;
        assert_eq!((read.status.as_u16(), &read.bytes[..]), (200, component.as_bytes()));
        let upload = by_job(head(chart.fence, 2, "two"));
        let written = put_to(&world, component, &chart.token, &upload, "two").await;
        written.rejected(403, "forbidden");
    }
    get(&world, &chart.token, "/runner/v1/state/db").await.rejected(403, "forbidden");
}

#[tokio::test]
async fn the_runner_uploads_late_until_a_later_execution_has_stored() {
    let (world, agent, install) = world().await;
    let former = run(&world, &agent, install, "web").await;
    end(&world, &former).await;
    let written_by = Some((former.job, former.execution.parse().unwrap()));
    let late =
        |serial, content| StateUpload { written_by, ..by_job(head(former.fence, serial, content)) };
    put(&world, &agent.token, &late(1, "one"), "one").await.ok();
    put(&world, &agent.token, &late(1, "one"), "one").await.ok();
    let mut wrong = late(2, "two");
    wrong.head.fence.position += 1;
    put(&world, &agent.token, &wrong, "two").await.rejected(412, "fenced");
    let later = run(&world, &agent, install, "web").await;
    put(&world, &later.token, &by_job(head(later.fence, 2, "new")), "new").await.ok();
    let rejection = put(&world, &agent.token, &late(3, "three"), "three").await;
    let rejection = rejection.rejected(412, "state_fenced");
    assert!(rejection["detail"].as_str().unwrap().contains("stead-runner state resolve"));
    assert_eq!(newest(&world, install).await.unwrap(), head(later.fence, 2, "new"));
}

#[tokio::test]
async fn a_runner_of_another_install_neither_reads_nor_stores() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    put(&world, &held.token, &by_job(head(held.fence, 1, "one")), "one").await.ok();
    let (mut stranger, own) = world.agent().await;
    world.open(&mut stranger, "k", json!([])).await;
    assert_eq!(get(&world, &stranger.token, "/runner/v1/state/web").await.status, 204);
    let written_by = Some((held.job, held.execution.parse().unwrap()));
    let foreign = StateUpload { written_by, ..by_job(head(held.fence, 2, "two")) };
    put(&world, &stranger.token, &foreign, "two").await.rejected(403, "forbidden");
    // A runner names the execution or the decision of a user, and a job neither.
    let upload = by_job(head(held.fence, 2, "two"));
    put(&world, &agent.token, &upload, "two").await.rejected(400, "bad_request");
    let decided = StateUpload { is_decided: true, ..upload };
    put(&world, &held.token, &decided, "two").await.rejected(400, "bad_request");
    record(&world, own, 1).await;
    put(&world, &stranger.token, &decided, "two").await.ok();
    assert_eq!(newest(&world, install).await.unwrap().serial, 1);
    assert_eq!(newest(&world, own).await.unwrap().serial, 2);
}

#[tokio::test]
async fn a_decision_on_the_host_stores_another_lineage() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    put(&world, &held.token, &by_job(head(held.fence, 7, "one")), "one").await.ok();
    let mut other = head(held.fence, 1, "restored");
    other.lineage = "m".into();
    let decided = StateUpload { is_decided: true, ..by_job(other.clone()) };
    let mut elsewhere = decided.clone();
    elsewhere.head.fence.position += 1;
    put(&world, &agent.token, &decided, "restored").await.rejected(422, "unknown_component");
    record(&world, install, 7).await;
    let in_use = put(&world, &agent.token, &decided, "restored").await;
    assert_eq!(in_use.rejected(409, "state_in_use")["job"], held.job.to_string());
    lose(&world, &held).await;
    put(&world, &agent.token, &elsewhere, "restored").await.rejected(412, "state_fenced");
    put(&world, &agent.token, &decided, "restored").await.ok();
    assert_eq!(newest(&world, install).await, Some(other));
    // The former execution no longer stores its state.
    let upload = by_job(head(held.fence, 8, "two"));
    put(&world, &held.token, &upload, "two").await.rejected(412, "state_fenced");
    // A later one does.
    resolve(&world, &held).await;
    let later = run(&world, &agent, install, "web").await;
    let mut next = head(later.fence, 2, "next");
    next.lineage = "m".into();
    put(&world, &later.token, &by_job(next), "next").await.ok();
}

#[tokio::test]
async fn a_runner_uploads_states_of_the_runner_that_it_replaced() {
    let (world, agent, install) = world().await;
    let former = run(&world, &agent, install, "web").await;
    end(&world, &former).await;
    revoke(&world, agent.id).await;
    let mut replaced = world.enrolled(Purpose::Install { install }).await;
    world.open(&mut replaced, "k", json!([])).await;
    let written_by = Some((former.job, former.execution.parse().unwrap()));
    let late = StateUpload { written_by, ..by_job(head(former.fence, 1, "one")) };
    put(&world, &replaced.token, &late, "one").await.ok();
    assert_eq!(newest(&world, install).await.unwrap().serial, 1);
}

#[tokio::test]
async fn a_decision_without_a_stored_state_has_no_fence_of_the_future() {
    let (world, agent, install) = world().await;
    record(&world, install, 1).await;
    let fence = Fence { epoch: i64::MAX.unsigned_abs(), position: i64::MAX.unsigned_abs() };
    let decided = StateUpload { is_decided: true, ..by_job(head(fence, 1, "one")) };
    put(&world, &agent.token, &decided, "one").await.rejected(412, "state_fenced");
    let held = run(&world, &agent, install, "web").await;
    put(&world, &held.token, &by_job(head(held.fence, 1, "one")), "one").await.ok();
}

#[tokio::test]
async fn an_execution_that_has_begun_rejects_states_of_earlier_ones() {
    let (world, agent, install) = world().await;
    let former = run(&world, &agent, install, "web").await;
    put(&world, &former.token, &by_job(head(former.fence, 1, "one")), "one").await.ok();
    end(&world, &former).await;
    let written_by = Some((former.job, former.execution.parse().unwrap()));
    let late =
        |serial, content| StateUpload { written_by, ..by_job(head(former.fence, serial, content)) };
    put(&world, &agent.token, &late(2, "two"), "two").await.ok();
    // Neither a plan nor a job of another component begins to change this one.
    let plan = run_kind(&world, &agent, install, JobKind::Plan, json!({"component": "web"})).await;
    get(&world, &plan.token, "/runner/v1/state/web").await;
    let inputs = json!({"component": "chart", "cluster": {"component": "web", "required": true}});
    let chart = run_with(&world, &agent, install, inputs).await;
    get(&world, &chart.token, "/runner/v1/state/web").await;
    put(&world, &agent.token, &late(3, "three"), "three").await.ok();
    // An apply does, by reading its state.
    let later = run(&world, &agent, install, "web").await;
    assert_eq!(get(&world, &later.token, "/runner/v1/state/web").await.bytes, "three");
    put(&world, &agent.token, &late(4, "four"), "four").await.rejected(412, "state_fenced");
    put(&world, &later.token, &by_job(head(later.fence, 4, "new")), "new").await.ok();
    assert_eq!(newest(&world, install).await.unwrap(), head(later.fence, 4, "new"));
}

#[tokio::test]
async fn a_preflight_reads_the_states_of_the_clusters_of_its_run_only() {
    let (world, agent, install) = world().await;
    for component in ["web", "db"] {
        let held = run(&world, &agent, install, component).await;
        let upload = by_job(head(held.fence, 1, component));
        put_to(&world, component, &held.token, &upload, component).await.ok();
        end(&world, &held).await;
    }
    let planned = |name: &str, rendered: Value| {
        let mut planned = json!({"name": name, "kinds": ["plan", "apply"],
            "plugin": {"name": "helm_chart", "version": "1"}});
        planned.as_object_mut().unwrap().extend(rendered.as_object().unwrap().clone());
        planned
    };
    let inputs = json!({"component": "chart", "cluster": {"component": "web", "required": true}});
    let run = RunId(Ulid::new());
    let inputs = json!({"run": run, "jobs": [
        planned("chart", json!({"known": {"inputs": inputs}})),
        planned("db", json!({"deferred": "it reads a result of the run"})),
    ]});
    let preflight = run_kind(&world, &agent, install, JobKind::Preflight, inputs).await;
    let read = get(&world, &preflight.token, "/runner/v1/state/web").await;
    assert_eq!((read.status.as_u16(), &read.bytes[..]), (200, &b"web"[..]));
    get(&world, &preflight.token, "/runner/v1/state/db").await.rejected(403, "forbidden");
    assert_eq!(get(&world, &preflight.token, "/runner/v1/state/sandbox").await.status, 204);
    let upload = by_job(head(preflight.fence, 2, "two"));
    put(&world, &preflight.token, &upload, "two").await.rejected(403, "forbidden");
}

#[tokio::test]
async fn each_read_names_the_newest_version_in_the_log() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    let path = "/runner/v1/state/web";
    assert!(!get(&world, &held.token, path).await.headers.contains_key("state-recorded"));
    record(&world, install, 7).await;
    let recorded = json!({"lineage": "l", "serial": 7}).to_string();
    let absent = get(&world, &held.token, path).await;
    assert_eq!(absent.status, 204);
    assert_eq!(absent.headers["state-recorded"], *recorded);
    put(&world, &held.token, &by_job(head(held.fence, 8, "eight")), "eight").await.ok();
    for (known, status) in [("eight", 304), ("seven", 200)] {
        let request = Request::get(path)
            .header("authorization", format!("Bearer {}", held.token))
            .header("if-none-match", format!("\"{}\"", digest(known)));
        let read = world.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(read.status.as_u16(), status);
        assert_eq!(read.headers["state-recorded"], *recorded);
    }
}

#[tokio::test]
async fn an_incomplete_upload_and_an_unreadable_version_store_nothing() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    let upload = by_job(head(held.fence, 1, "one"));
    let cut = futures::stream::iter([Ok(vec![1_u8]), Err(std::io::Error::other("cut"))]);
    let response = put_bytes(&world, &held.token, &upload, Body::from_stream(cut)).await;
    // Another attempt can succeed.
    response.rejected(408, "body_incomplete");
    let mut invalid = upload.clone();
    invalid.head.digest = "sha256:00".into();
    put(&world, &held.token, &invalid, "one").await.rejected(400, "bad_request");
    assert_eq!(newest(&world, install).await, None);
}

#[tokio::test]
async fn a_state_that_cannot_be_read_is_an_error_and_never_absent() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    put(&world, &held.token, &by_job(head(held.fence, 1, "one")), "one").await.ok();
    // Given rows that this server cannot read.
    let broken = "alter table state_version alter column serial type text";
    sqlx::query(broken).execute(&world.app.pool).await.unwrap();
    get(&world, &held.token, "/runner/v1/state/web").await.rejected(500, "internal");
}

#[tokio::test]
async fn an_erased_install_stores_no_state() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    put(&world, &held.token, &by_job(head(held.fence, 1, "one")), "one").await.ok();
    let (id, now) = (install.to_string(), world.app.now());
    sqlx::query(
        "insert into subject_key (subject, created_at, shredded_at) values ($1, $2, $2) \
         on conflict (subject) do update set wrapped = null, shredded_at = $2",
    )
    .bind(&id)
    .bind(now)
    .execute(&world.app.pool)
    .await
    .unwrap();
    let upload = by_job(head(held.fence, 2, "two"));
    put(&world, &held.token, &upload, "two").await.rejected(412, "fenced");
    let ids = [id];
    assert_eq!(state_versions::not_erased(&world.app.pool, &ids).await.unwrap(), 1);
    state_versions::erase(&world.app.pool, &ids).await.unwrap();
    assert_eq!(newest(&world, install).await, None);
}

#[tokio::test]
async fn concurrent_uploads_of_a_component_are_ordered() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    let sent = (1..=4).map(|serial| {
        let (world, held) = (&world, &held);
        async move {
            let content = format!("v{serial}");
            let upload = by_job(head(held.fence, serial, &content));
            loop {
                match put(world, &held.token, &upload, &content).await.status.as_u16() {
                    // Another one is being stored.
                    503 => tokio::time::sleep(Duration::from_millis(5)).await,
                    status => break status,
                }
            }
        }
    });
    let statuses = futures::future::join_all(sent).await;
    assert!(statuses.iter().all(|status| [200, 409].contains(status)), "{statuses:?}");
    let serials = serials(&world).await;
    assert!(serials.is_sorted() && serials.last() == Some(&4), "{serials:?}");
}

#[tokio::test]
async fn a_job_uses_its_state_after_its_token_expired_until_it_ends() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    let execution = held.execution.parse().unwrap();
    let hours_ago = world.app.now() - chrono::TimeDelta::hours(5);
    let token = world
        .app
        .tokens
        .job(agent.id, held.job, execution, held.fence, hours_ago, hours_ago)
        .unwrap();
    let upload = by_job(head(held.fence, 1, "one"));
    put(&world, &token, &upload, "one").await.ok();
    assert_eq!(get(&world, &token, "/runner/v1/state/web").await.status, 200);
    end(&world, &held).await;
    get(&world, &token, "/runner/v1/state/web").await.rejected(412, "fenced");
}
