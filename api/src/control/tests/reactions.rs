//! Reactions of policies.
use std::time::Duration;

use domain::{
    artifact::Artifact,
    build::{Build, BuildCommand, State as BuildState},
    digest::Digest,
    ids::{ExecutionId, InstallId, JobId, RunId, RunnerId, SessionId},
    install::Install,
    job::{ExecutionResult, Job, JobCommand, PlanReport, Report},
    run::{Outcome, Preflight, Run, StepFailure, StepState},
};
use event_log::{Commit, EventLog, Meta, NewEvent, StreamId, Write};
use oci_layout::{EMPTY, Layout};
use schemas::control::{audit::EventsQuery, builds::BuildsQuery, installs::UpdateInstall};
use serde_json::{Value, json};
use ulid::Ulid;

use super::{new_install, owner, with_install};
use crate::{
    execute::Call,
    reactions::dead_letters,
    server::{
        Server,
        testing::{self, Started, options},
    },
    state::App,
};

pub(super) fn digest(n: u8) -> Digest {
    format!("sha256:{n:064x}").parse().unwrap()
}

fn meta() -> Meta {
    Meta::new(domain::actor::Actor::System, Ulid::new().to_string())
}

pub(super) async fn wait_for<T>(mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..400 {
        if let Some(found) = condition().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("timeout");
}

/// Appends an event to the stream of an install.
pub(super) async fn append_event(
    log: &EventLog,
    install: InstallId,
    event: &str,
    domain_event: Value,
) {
    let stream = StreamId::new("install", install.to_string());
    let expected = log.version(&stream).await.unwrap();
    let (event_type, payload) = (event.to_owned().into(), domain_event.to_string());
    let events = vec![NewEvent { event_type, event_version: "1".into(), payload, customer: None }];
    let commit = Commit::of(meta(), vec![Write { stream, expected, events }]);
    log.append(commit).await.unwrap();
}

pub(super) async fn enroll(app: &App, install: InstallId) {
    stack_outputs_reported(app.log(), install).await;
}

async fn stack_outputs_reported(log: &EventLog, install: InstallId) {
    let runner = RunnerId(Ulid::new());
    let payload = json!({"type": "stack_outputs_reported", "runner": runner, "outputs": {}});
    append_event(log, install, "install.stack_outputs_reported", payload).await;
}

pub(super) async fn run_of(app: &App, install: InstallId) -> RunId {
    wait_for(async || {
        app.engine.load::<Install>(install).await.unwrap().runs.keys().next().copied()
    })
    .await
}

/// Waits until the first step has a matching state.
pub(super) async fn wait_for_step<T>(
    app: &App,
    run: RunId,
    matching: impl Fn(&StepState) -> Option<T>,
) -> T {
    wait_for(async || {
        let run = app.engine.load::<Run>(run).await.unwrap();
        run.steps.first().and_then(|step| matching(&step.state))
    })
    .await
}

fn failed(state: &StepState) -> Option<(StepFailure, String)> {
    let StepState::Failed { reason, detail } = state else { return None };
    Some((*reason, detail.clone()))
}

/// Completes the build of the app's first component, so that waiting runs advance.
pub(super) async fn complete_build(started: &Started) {
    complete_build_of(started, "base").await;
}

/// Stores an artifact without layers. A run rejects a build without its artifact.
pub(super) fn store_artifact(started: &Started, repository: &str) -> Digest {
    let layout = Layout::new(started.data.path().join("registry").join(repository));
    let config = layout.put(EMPTY).unwrap();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": [],
        "config": {
            "mediaType": "application/vnd.oci.empty.v1+json", "digest": config, "size": EMPTY.len(),
        },
    });
    let digest = layout.put(manifest.to_string().as_bytes()).unwrap();
    layout.add_to_index(repository, &digest).unwrap();
    digest
}

async fn complete_build_of(started: &Started, component: &str) {
    let app = started.app();
    let builds = owner(started).builds(&BuildsQuery::default()).await.unwrap().items;
    let build = builds.iter().find(|build| build.component_name == component).unwrap().id;
    wait_for(async || {
        let state = app.engine.load::<Build>(build).await.unwrap().state;
        matches!(state, BuildState::Building { .. }).then_some(())
    })
    .await;
    let call = Call::of(meta());
    let repository = format!("shop/{component}");
    let digest = store_artifact(started, &repository);
    let done = app.engine.transact(&call, move |unit| {
        let (repository, digest) = (repository.clone(), digest.clone());
        let artifact = Artifact { repository, digest, size_bytes: 1, upstream: None };
        Box::pin(unit.handle::<Build>(build, BuildCommand::Succeed { artifact }))
    });
    assert_eq!(done.await.unwrap().value, 1);
}

/// Claims the job, sends this report and completes the job.
pub(super) async fn complete_job(app: &App, job: JobId, result: Report) {
    let (execution, runner) = (ExecutionId(Ulid::new()), RunnerId(Ulid::new()));
    let (session, claim_id) = (SessionId(Ulid::new()), "c".to_owned());
    let report = |seq, report| JobCommand::Report { execution, seq, report, signed: None };
    let commands = vec![
        JobCommand::Claim { execution, runner, session, claim_id },
        report(1, Report::Started { isolation: None }),
        report(2, result),
        report(
            3,
            Report::Finished(ExecutionResult::Succeeded { exit_code: Some(0), not_ended: vec![] }),
        ),
    ];
    testing::append_commands(app, job, commands).await;
}

#[tokio::test]
async fn failing_run_does_not_block_others_that_waited_for_the_build() {
    let (started, owner, acme) = with_install().await;
    let beta = owner.create_install(&new_install("beta")).await.unwrap();
    let app = started.app();
    // The run that fails is first in the queue.
    enroll(app, beta.id).await;
    let beta_run = run_of(app, beta.id).await;
    enroll(app, acme.id).await;
    let acme_run = run_of(app, acme.id).await;
    let by = domain::actor::Actor::System;
    let wrong = json!({"type": "inputs_changed", "set": {"size": "large"}, "by": by});
    append_event(app.log(), beta.id, "install.inputs_changed", wrong).await;
    complete_build(&started).await;

    let job = wait_for_step(app, acme_run, StepState::job).await;
    let queued = app.engine.load::<Job>(job).await.unwrap();
    assert!(queued.work.is_some(), "{queued:?}");
    let (reason, detail) = wait_for_step(app, beta_run, failed).await;
    assert_eq!(reason, StepFailure::RenderFailed);
    assert!(detail.contains("size"), "{detail}");
    pass_preflight(app, beta_run).await;
    wait_for(async || app.engine.load::<Run>(beta_run).await.unwrap().outcome).await;
    // The run is finished, and the install can start another run.
    let run = app.engine.load::<Run>(beta_run).await.unwrap();
    assert_eq!(run.outcome, Some(Outcome::Failed));
    assert!(app.engine.load::<Install>(beta.id).await.unwrap().runs.is_empty());
    started.server.stop().await;
}

#[tokio::test]
async fn build_records_every_concurrent_waiter() {
    const INSTALLS: usize = 48;
    // Given installs whose runners enrolled while no server ran.
    let (started, owner, _) = with_install().await;
    let mut installs = vec![];
    for number in 0..INSTALLS {
        let created = owner.create_install(&new_install(&format!("many{number}"))).await.unwrap();
        installs.push(created.id);
    }
    let Started { server, data, http, database } = started;
    server.stop().await;
    let pool = event_log::connect(&database, 2).await.unwrap();
    let log = EventLog::open(pool, event_log::Options::default()).await.unwrap();
    for install in &installs {
        stack_outputs_reported(&log, *install).await;
    }
    drop(log);
    // When a server starts.
    let server = Server::start(options(data.path(), &database)).await.unwrap();
    let started = Started { server, data, http, database };
    // Then all runs wait for the build, and there are no dead letters.
    let builds = super::owner(&started).builds(&BuildsQuery::default()).await.unwrap().items;
    let build = builds.iter().find(|build| build.component_name == "base").unwrap().id;
    let app = started.app();
    wait_for(async || {
        let waiting = app.engine.load::<Build>(build).await.unwrap().waiters.len();
        (waiting == INSTALLS).then_some(())
    })
    .await;
    complete_build(&started).await;
    for install in installs {
        let run = run_of(app, install).await;
        wait_for_step(app, run, StepState::job).await;
    }
    assert_eq!(dead_letters::progress(&app.pool).await.unwrap().dead_letters, 0);
    started.server.stop().await;
}

#[tokio::test]
async fn reprocessed_events_have_no_effect() {
    // Given an install whose first provision failed, and one whose run is in progress.
    let (started, owner, acme) = with_install().await;
    let beta = owner.create_install(&new_install("beta")).await.unwrap();
    let app = started.app();
    enroll(app, beta.id).await;
    let failed = run_of(app, beta.id).await;
    enroll(app, acme.id).await;
    run_of(app, acme.id).await;
    let by = domain::actor::Actor::System;
    let wrong = json!({"type": "inputs_changed", "set": {"size": "large"}, "by": by});
    append_event(app.log(), beta.id, "install.inputs_changed", wrong).await;
    complete_build(&started).await;
    pass_preflight(app, failed).await;
    wait_for(async || app.engine.load::<Run>(failed).await.unwrap().outcome).await;
    // And the install whose provision failed has valid inputs now.
    let right = json!({"type": "inputs_changed", "set": {"size": "1"}, "by": by});
    append_event(app.log(), beta.id, "install.inputs_changed", right).await;
    let Started { server, data, http, database } = started;
    server.stop().await;
    let pool = event_log::connect(&database, 1).await.unwrap();
    let caused = async || {
        let by_policies = "select count(*) from log_event where metadata->>'actor' like '%policy%'";
        sqlx::query_scalar::<_, i64>(by_policies).fetch_one(&pool).await.unwrap()
    };
    let before = caused().await;
    assert!(before > 5, "{before}");
    // When a server starts with the initial consumer position.
    sqlx::query("update log_consumer set position = 0 where name = 'policies'")
        .execute(&pool)
        .await
        .unwrap();
    let server = Server::start(options(data.path(), &database)).await.unwrap();
    let started = Started { server, data, http, database };
    let app = started.app();
    wait_for(async || {
        let progress = dead_letters::progress(&app.pool).await.unwrap();
        assert_eq!(progress.dead_letters, 0);
        (progress.position == app.log().position()).then_some(())
    })
    .await;
    // Then no run and no job is requested twice.
    assert_eq!(caused().await, before);
    started.server.stop().await;
}

/// Completes the preflight of the run, so that it may make changes.
pub(super) async fn pass_preflight(app: &App, run: RunId) {
    let job = wait_for(async || match app.engine.load::<Run>(run).await.unwrap().preflight {
        Preflight::NotRequired | Preflight::Passed { .. } => Some(None),
        Preflight::Running { job } => Some(Some(job)),
        Preflight::Waiting => None,
        Preflight::Failed { .. } => panic!("the preflight failed"),
    })
    .await;
    if let Some(job) = job {
        complete_job(app, job, Report::Checks { checks: vec![] }).await;
    }
}

/// Passes the preflight and completes the plan job of the run's first step with a plan that adds one
/// resource.
pub(super) async fn complete_plan(app: &App, run: RunId) {
    pass_preflight(app, run).await;
    let plan = PlanReport {
        digest: digest(2),
        file: digest(3),
        summary: digest(4),
        noop: false,
        add: 1,
        change: 0,
        destroy: 0,
        tool: "t".into(),
        signature: "s".into(),
        v2: None,
    };
    complete_job(app, wait_for_step(app, run, StepState::job).await, Report::Plan(plan)).await;
}

/// Plans the first step of a run that needs no approval. Returns its apply job.
async fn apply_job_of(app: &App, run: RunId) -> JobId {
    complete_plan(app, run).await;
    wait_for_step(app, run, |state| {
        let StepState::Applying { job, .. } = state else { return None };
        Some(*job)
    })
    .await
}

#[tokio::test]
async fn failed_template_reports_its_location_and_variable() {
    // Given a component that reads an output that its dependency lacks.
    let (started, owner, acme) = with_install().await;
    let app = started.app();
    let on = UpdateInstall { auto_approve: Some(true), ..UpdateInstall::default() };
    owner.update_install("acme", &on).await.unwrap();
    enroll(app, acme.id).await;
    let run = run_of(app, acme.id).await;
    complete_build(&started).await;
    complete_build_of(&started, "shop").await;
    let outputs = [("name".to_owned(), json!("base"))].into();
    complete_job(app, apply_job_of(app, run).await, Report::Outputs { outputs }).await;
    // When the step of that component is rendered, `run.step_failed` contains the file, line,
    // column and variable.
    wait_for(async || app.engine.load::<Run>(run).await.unwrap().outcome).await;
    let query = EventsQuery {
        event_type: Some("run.step_failed".into()),
        ..serde_json::from_value(json!({})).unwrap()
    };
    let events = owner.events(&query).await.unwrap().items;
    let [failed] = &events[..] else { panic!("{events:?}") };
    let payload: Value =
        serde_json::from_str(failed.readable_payload.as_ref().unwrap().get()).unwrap();
    assert!(failed.payload.get().contains(r#""detail":"[encrypted]""#));
    let detail = payload["detail"].as_str().unwrap();
    let (location, variable) = ("components/shop.toml:8:17", ".nuon.components.base.outputs.id");
    assert!(
        detail.starts_with(&format!("{location}: {variable}: \"id\" does not exist")),
        "{detail}"
    );
    started.server.stop().await;
}

#[tokio::test]
async fn oversized_result_fails_its_step_with_a_message() {
    let (started, owner, acme) = with_install().await;
    let app = started.app();
    let on = UpdateInstall { auto_approve: Some(true), ..UpdateInstall::default() };
    owner.update_install("acme", &on).await.unwrap();
    enroll(app, acme.id).await;
    let run = run_of(app, acme.id).await;
    complete_build(&started).await;
    let applying = apply_job_of(app, run).await;
    // The outputs fit into the event of the job, but not into the larger event of the install.
    let outputs = [("id".to_owned(), json!("x".repeat(65_300)))].into();
    complete_job(app, applying, Report::Outputs { outputs }).await;
    let (reason, detail) = wait_for_step(app, run, failed).await;
    assert_eq!(reason, StepFailure::RenderFailed);
    assert!(detail.contains("65536"), "{detail}");
    let run = app.engine.load::<Run>(run).await.unwrap();
    assert_eq!(run.outcome, Some(Outcome::Failed));
    started.server.stop().await;
}
