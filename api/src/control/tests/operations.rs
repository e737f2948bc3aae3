//! Data for operators: advance approvals, resolutions, failures and waiting work.
use domain::{
    actor::Actor,
    ids::{ExecutionId, RunnerId, SessionId, TokenId},
    install::Install,
    job::{JobCommand, LossReason, Report},
    run::StepState,
    runner::{Host, Identity, Runner, RunnerCommand, RunnerMode},
};
use event_log::Meta;
use schemas::control::{
    installs::CreateInstall,
    jobs::{Resolve, ResolveAs},
    runs::ApproveRun,
};
use serde_json::json;
use ulid::Ulid;

use super::{
    bundle, new_install, owner,
    reactions::{
        append_event, complete_build, complete_plan, digest, enroll, pass_preflight, run_of,
        wait_for, wait_for_step,
    },
    rejection, with_install,
};
use crate::{
    execute::Call,
    server::testing::{self, Started},
    state::App,
};

async fn metrics(started: &Started) -> String {
    let url = format!("{}/metrics", started.server.ready.control);
    started.http.get(url).send().await.unwrap().text().await.unwrap()
}

fn waiting(state: &StepState) -> Option<()> {
    matches!(state, StepState::AwaitingApproval { .. }).then_some(())
}

#[tokio::test]
async fn auto_approved_first_provision_does_not_wait() {
    let started = Started::new().await;
    let (owner, app) = (owner(&started), started.app());
    owner.sync("shop", bundle("1"), false).await.unwrap();
    let request = CreateInstall { auto_approve_first: true, ..new_install("acme") };
    let both = CreateInstall { auto_approve: true, ..request.clone() };
    assert_eq!(rejection(owner.create_install(&both).await).0, 400);
    let acme = owner.create_install(&request).await.unwrap();
    enroll(app, acme.id).await;
    let run = run_of(app, acme.id).await;
    complete_build(&started).await;
    complete_plan(app, run).await;
    wait_for_step(app, run, |state| matches!(state, StepState::Applying { .. }).then_some(()))
        .await;
    let decision = wait_for(async || owner.run(run).await.unwrap().dag[0].decision.clone()).await;
    assert_eq!((&*decision.decision, &*decision.by), ("approved", "policy:auto_approve_first"));
    assert!(!owner.install("acme").await.unwrap().auto_approve);
    assert!(app.engine.load::<Install>(acme.id).await.unwrap().approves_first(run));
}

#[tokio::test]
async fn resolution_is_shown_with_its_user_and_reason() {
    let (started, owner, acme) = with_install().await;
    let app = started.app();
    let me = owner.whoami().await.unwrap().principal.to_string();
    enroll(app, acme.id).await;
    let run = run_of(app, acme.id).await;
    complete_build(&started).await;
    complete_plan(app, run).await;
    wait_for_step(app, run, waiting).await;
    let step = owner.run(run).await.unwrap().dag[0].id;
    let approval = ApproveRun { step, digest: digest(2), reason: "read it".into() };
    owner.approve(run, &approval).await.unwrap();
    let job = wait_for_step(app, run, |state| {
        let StepState::Applying { job, .. } = state else { return None };
        Some(*job)
    });
    let job = job.await;
    let (execution, runner) = (ExecutionId(Ulid::new()), RunnerId(Ulid::new()));
    let (session, claim_id) = (SessionId(Ulid::new()), "c".to_owned());
    let commands = vec![
        JobCommand::Claim { execution, runner, session, claim_id },
        JobCommand::Report {
            execution,
            seq: 1,
            report: Report::Started { isolation: None },
            signed: None,
        },
        JobCommand::DeclareLost { execution, loss_reason: LossReason::ExecutionNotInJournal },
    ];
    testing::append_commands(app, job, commands).await;
    let unresolved = wait_for(async || owner.job(job).await.ok()).await;
    assert_eq!(unresolved.resolution, None);
    let verdict = ResolveAs::Failed;
    let resolve = Resolve { execution, resolution: verdict, reason: "the host burned".into() };
    owner.resolve_job(job, &resolve).await.unwrap();
    let response = owner.job(job).await.unwrap().resolution.unwrap();
    let expected = (&*me, "failed", "the host burned", execution);
    assert_eq!(
        (&*response.by, &*response.resolution, &*response.reason, response.execution),
        expected
    );
    assert_eq!(owner.run(run).await.unwrap().dag[0].resolution.as_ref(), Some(&response));
}

#[tokio::test]
async fn metrics_count_waiting_approvals_and_failed_runs() {
    let (started, owner, acme) = with_install().await;
    let beta = owner.create_install(&new_install("beta")).await.unwrap();
    let app = started.app();
    let text = metrics(&started).await;
    assert!(text.contains("stead_approvals_waiting 0\n"), "{text}");
    assert!(text.contains("stead_approvals_oldest_seconds 0.0\n"), "{text}");
    assert!(text.contains("stead_runners_disconnected 0\n"), "{text}");
    assert!(text.contains("stead_runs_failed_total{kind=\"provision\"} 0\n"), "{text}");
    // Given a plan that waits for approval, and a run whose input is not a number.
    enroll(app, acme.id).await;
    let run = run_of(app, acme.id).await;
    enroll(app, beta.id).await;
    let beta_run = run_of(app, beta.id).await;
    // With the wrong input, the preflight itself could fail.
    pass_preflight(app, beta_run).await;
    let wrong = json!({"type": "inputs_changed", "set": {"size": "large"}, "by": "system"});
    append_event(app.log(), beta.id, "install.inputs_changed", wrong).await;
    complete_build(&started).await;
    complete_plan(app, run).await;
    wait_for_step(app, run, waiting).await;
    // Then the metrics count the waiting approval and the failed run.
    wait_for(async || {
        let text = metrics(&started).await;
        let failed = text.contains("stead_runs_failed_total{kind=\"provision\"} 1\n");
        (failed && text.contains("stead_approvals_waiting 1\n")).then_some(())
    })
    .await;
}

/// Build runner that has handled these commands.
pub(super) async fn runner(app: &App, commands: Vec<RunnerCommand>) -> RunnerId {
    let runner = RunnerId(Ulid::new());
    let identity = Identity {
        mode: RunnerMode::Build,
        install: None,
        identity_key: hex::encode(proof::sha256(runner.to_string().as_bytes())),
        install_keys: None,
        version: "1".into(),
        host: Host { os: "linux".into(), arch: "x86_64".into(), hostname: None },
        enrolment: TokenId(Ulid::new()),
    };
    handle_all(app, runner, [vec![RunnerCommand::Enrol(identity)], commands].concat()).await;
    runner
}

async fn handle_all(app: &App, runner: RunnerId, commands: Vec<RunnerCommand>) {
    let call = Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
    let done = app.engine.transact(&call, move |unit| {
        let commands = commands.clone();
        Box::pin(async move {
            for command in commands {
                unit.handle::<Runner>(runner, command).await?;
            }
            Ok(())
        })
    });
    done.await.unwrap();
}

async fn metric_is(started: &Started, line: &str) -> Option<()> {
    metrics(started).await.contains(line).then_some(())
}

#[tokio::test]
async fn metric_counts_unexpectedly_disconnected_runners() {
    let started = Started::new().await;
    let app = started.app();
    let silent = |stopped| RunnerCommand::Disconnect { last_contact_at: app.now(), stopped };
    let revoke = RunnerCommand::Revoke { by: Actor::System, reason: "gone".into() };
    // Given two disconnected runners, one that stopped, one that was revoked, and one that is
    // connected.
    let (first, _) =
        (runner(app, vec![silent(false)]).await, runner(app, vec![silent(false)]).await);
    runner(app, vec![silent(true)]).await;
    runner(app, vec![silent(false), revoke]).await;
    runner(app, vec![]).await;
    wait_for(async || metric_is(&started, "stead_runners_disconnected 2\n").await).await;
    // When one of the disconnected runners reconnects.
    handle_all(app, first, vec![RunnerCommand::Reconnect]).await;
    wait_for(async || metric_is(&started, "stead_runners_disconnected 1\n").await).await;
}
