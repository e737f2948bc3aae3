//! Versions of a component's state: recorded, sent to the runner, and replaced only by a decision.
use domain::{
    ids::{ExecutionId, JobId, RunnerId, SessionId},
    install::Install,
    job::{ExecutionResult, Job, JobCommand, PlanReport, Report},
    run::StepState,
    state_version::StateVersion,
};
use schemas::control::installs::{AcceptState, UpdateInstall};
use serde_json::{Value, json};
use ulid::Ulid;

use super::{
    reactions::{complete_build, digest, enroll, pass_preflight, run_of, wait_for, wait_for_step},
    with_install,
};
use crate::{server::testing, state::App};

fn version(serial: u64) -> StateVersion {
    StateVersion { lineage: "lineage-1".into(), serial, digest: None }
}

/// Completes a plan job that read the state with this serial.
async fn complete_plan_from(app: &App, job: JobId, serial: u64) {
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
        report(2, Report::State { state: version(serial) }),
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
    complete_plan_from(app, wait_for_step(app, run, StepState::job).await, 7).await;
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
        reason: reason.into(),
    };
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
