//! Versions of a component's state: recorded, sent to the runner, and replaced only by a decision.
use cli::client::Client;
use domain::{
    actor::Actor,
    ids::{ExecutionId, InstallId, JobId, RunId, RunnerId, SessionId},
    install::Install,
    job::{ExecutionResult, Job, JobCommand, PlanReport, Report},
    run::StepState,
    state_version::StateVersion,
};
use event_log::Meta;
use schemas::{
    control::installs::{AcceptState, UpdateInstall},
    manifest::Fence,
    runner::StateHead,
};
use serde_json::{Value, json};
use ulid::Ulid;

use super::{
    reactions::{complete_build, digest, enroll, pass_preflight, run_of, wait_for, wait_for_step},
    with_install,
};
use crate::{
    execute::Call,
    server::testing::{self, Started},
    state::App,
    state_versions::{self, NewVersion, Of, Replaces, Writer},
    usecases::steps::{self, complete},
};

fn version(serial: u64) -> StateVersion {
    StateVersion { lineage: "lineage-1".into(), serial, digest: None }
}

/// Completes a plan job that read this state.
async fn complete_plan_from(app: &App, job: JobId, state: StateVersion) {
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
    let (execution, runner) = (ExecutionId(Ulid::new()), RunnerId(Ulid::new()));
    let (session, claim_id) = (SessionId(Ulid::new()), "c".to_owned());
    let report = |seq, report| JobCommand::Report { execution, seq, report, signed: None };
    let commands = vec![
        JobCommand::Claim { execution, runner, session, claim_id },
        report(1, Report::Started { isolation: None }),
        report(2, Report::State { state }),
        report(3, Report::Plan(plan)),
        report(
            4,
            Report::Finished(ExecutionResult::Succeeded { exit_code: Some(0), not_ended: vec![] }),
        ),
    ];
    testing::append_commands(app, job, commands).await;
}

#[tokio::test]
async fn manifest_has_the_newest_state_until_a_user_accepts_an_older_one() {
    let (started, owner, acme) = with_install().await;
    let app = started.app();
    let on = UpdateInstall { auto_approve: Some(true), ..UpdateInstall::default() };
    owner.update_install("acme", &on).await.unwrap();
    enroll(app, acme.id).await;
    let run = run_of(app, acme.id).await;
    complete_build(&started).await;
    // Given a plan from the state with serial 7.
    pass_preflight(app, run).await;
    complete_plan_from(app, wait_for_step(app, run, StepState::job).await, version(7)).await;
    let applying = wait_for_step(app, run, |state| {
        if let StepState::Applying { job, .. } = state { Some(*job) } else { None }
    })
    .await;
    // Then the apply's manifest has this version.
    let work = app.engine.load::<Job>(applying).await.unwrap().work.unwrap();
    let stored = async || event_log::blob::get(&app.pool, &work.manifest).await.unwrap();
    let bytes = wait_for(stored).await;
    let manifest: Value = serde_json::from_slice(&bytes).unwrap();
    let newest = json!({ "lineage": "lineage-1", "serial": 7 });
    assert_eq!(manifest["state"], json!({ "newest": newest }));

    // When a user accepts an older version.
    let accept = |reason: &str| AcceptState {
        lineage: "lineage-1".into(),
        serial: 3,
        force: true,
        reason: reason.into(),
    };
    // The server has no such state, so the caller must force it.
    let unforced = AcceptState { force: false, ..accept("restored") };
    assert!(owner.accept_state("acme", "base", &unforced).await.is_err());
    assert!(owner.accept_state("acme", "base", &accept("")).await.is_err());
    assert!(owner.accept_state("acme", "bsae", &accept("restored")).await.is_err());
    assert!(owner.accept_state("acme", "base", &accept("restored")).await.unwrap().changed);
    assert!(!owner.accept_state("acme", "base", &accept("restored")).await.unwrap().changed);
    let known = wait_for(async || {
        let install = app.engine.load::<Install>(acme.id).await.unwrap();
        install.states.get("base").filter(|known| known.decisions == 1).cloned()
    })
    .await;
    assert_eq!((known.newest, known.accepted), (Some(version(3)), Some(version(3))));
    started.server.stop().await;
}

/// Starts a run whose plans are approved automatically, up to its first plan. Returns the run and
/// the job of the plan.
async fn planning(started: &Started, owner: &Client, install: InstallId) -> (RunId, JobId) {
    let app = started.app();
    let on = UpdateInstall { auto_approve: Some(true), ..UpdateInstall::default() };
    owner.update_install("acme", &on).await.unwrap();
    enroll(app, install).await;
    let run = run_of(app, install).await;
    complete_build(started).await;
    pass_preflight(app, run).await;
    (run, wait_for_step(app, run, StepState::job).await)
}

fn applying(state: &StepState) -> Option<JobId> {
    if let StepState::Applying { job, .. } = state { Some(*job) } else { None }
}

/// Stores a state of `base` at the server, as an upload of its runner does.
async fn store(app: &App, install: InstallId, job: JobId, (serial, content): (u64, char)) {
    let (lineage, digest) = ("lineage-1".to_owned(), digest_of(content));
    let fence = Fence { epoch: 1, position: serial };
    let head = &StateHead { lineage, serial, fence, digest, is_empty: false };
    let (ciphertext, replaces, writer) = (vec![7], Replaces::EmptyState, Writer::Job(job));
    let new = NewVersion { head, ciphertext, replaces, writer, named: &[], quota: 1 << 20 };
    let of = Of { install, component: "base" };
    state_versions::put(&app.pool, app.now(), of, new, ()).await.unwrap().unwrap();
}

fn digest_of(content: char) -> String {
    format!("hmac-sha256:1:{}", String::from(content).repeat(64))
}

#[tokio::test]
async fn an_apply_waits_for_the_state_that_its_plan_read() {
    let (started, owner, acme) = with_install().await;
    let (run, plan) = planning(&started, &owner, acme.id).await;
    let app = started.app();
    // Given a server with other content of the same version, from another host.
    store(app, acme.id, plan, (7, 'b')).await;
    let state = StateVersion { digest: Some(digest_of('a')), ..version(7) };
    complete_plan_from(app, plan, state.clone()).await;
    let is_approved = |state: &StepState| matches!(state, StepState::Approved { .. }).then_some(());
    wait_for_step(app, run, is_approved).await;
    let install = async || app.engine.load::<Install>(acme.id).await.unwrap();
    assert_eq!(install().await.awaited_states.get("base"), Some(&state));
    // An attempt to continue leaves the step as it is.
    let call = Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
    steps::go_on(app, &call, run).await.unwrap();
    wait_for_step(app, run, is_approved).await;
    let waiting = wait_for(async || {
        let steps = owner.run(run).await.unwrap().dag;
        steps.into_iter().find_map(|step| step.waiting).filter(|waiting| waiting.on == "state")
    })
    .await;
    for remedy in ["stead-runner state resolve base", "stead installs accept-state acme base"] {
        assert!(waiting.detail.contains(remedy), "{}", waiting.detail);
    }
    // Then the decision of a user continues it.
    let accept = AcceptState {
        lineage: "lineage-1".into(),
        serial: 7,
        force: false,
        reason: "of the other host".into(),
    };
    let other = AcceptState { serial: 6, ..accept.clone() };
    let other = owner.accept_state("acme", "base", &other).await.unwrap_err().to_string();
    assert!(other.contains("the newest state of base at the server is"), "{other}");
    owner.accept_state("acme", "base", &accept).await.unwrap();
    wait_for_step(app, run, applying).await;
    assert!(install().await.awaited_states.is_empty());
    started.server.stop().await;
}

#[tokio::test]
async fn a_state_that_no_database_accepts_is_ignored() {
    let (started, owner, acme) = with_install().await;
    let (run, plan) = planning(&started, &owner, acme.id).await;
    let app = started.app();
    let digest = Some(digest_of('a'));
    complete_plan_from(app, plan, StateVersion { digest, ..version(1 << 63) }).await;
    wait_for_step(app, run, applying).await;
    let install = app.engine.load::<Install>(acme.id).await.unwrap();
    assert!(install.states.is_empty() && install.awaited_states.is_empty());
    started.server.stop().await;
}

#[tokio::test]
async fn the_state_of_a_job_counts_after_its_step_has_ended() {
    let (started, owner, acme) = with_install().await;
    let (_run, plan) = planning(&started, &owner, acme.id).await;
    let app = started.app();
    // Given a step that ended before the result of its job was processed.
    let call = Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
    complete::give_up(app, &call, plan, "broken").await.unwrap();
    let state = StateVersion { digest: Some(digest_of('a')), ..version(7) };
    complete_plan_from(app, plan, state.clone()).await;
    let install = wait_for(async || {
        let install = app.engine.load::<Install>(acme.id).await.unwrap();
        (!install.awaited_states.is_empty()).then_some(install)
    })
    .await;
    assert_eq!(install.awaited_states.get("base"), Some(&state));
    assert_eq!(install.states["base"].newest, Some(state));
    started.server.stop().await;
}

#[tokio::test]
async fn the_state_of_a_job_is_ignored_after_its_step_and_a_later_job() {
    let (started, owner, acme) = with_install().await;
    let (_run, plan) = planning(&started, &owner, acme.id).await;
    let app = started.app();
    let call = Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
    complete::give_up(app, &call, plan, "broken").await.unwrap();
    // Given a later job that has stored a state.
    store(app, acme.id, JobId(Ulid::new()), (3, 'b')).await;
    let state = StateVersion { digest: Some(digest_of('a')), ..version(7) };
    complete_plan_from(app, plan, state).await;
    let position = app.log().position();
    wait_for(async || {
        let policies = event_log::consumer::position(&app.pool, crate::POLICIES_CONSUMER).await;
        policies.unwrap().filter(|processed| *processed >= position)
    })
    .await;
    let install = app.engine.load::<Install>(acme.id).await.unwrap();
    assert!(install.awaited_states.is_empty() && install.states.is_empty());
    started.server.stop().await;
}
