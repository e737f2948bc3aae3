//! Upgrades, rollbacks and input updates of installs, and retries of runs.
use std::collections::{BTreeMap, BTreeSet};

use cli::client::Client;
use domain::{
    actor::Actor,
    ids::{BuildId, ComponentId, InstallId, RunId, RunnerId, StepId},
    install::{Install, InstallCommand, Outputs, Resource, StepResult},
    run::{Outcome, RunKind},
};
use event_log::Meta;
use schemas::control::{
    ReasonBody,
    apps::{DiffQuery, InputDifference},
    audit::EventsQuery,
    installs::UpdateInstall,
    jobs::Cancel,
    runs::{RequestRun, RequestedKind},
};
use ulid::Ulid;

use super::{bundle_of, bundle_with, new_install, reactions::wait_for, rejection, with_install};
use crate::{execute::Call, server::testing::Started};

/// Records a runner and both components at version 1.
pub(super) async fn deploy_version_1(started: &Started, install: InstallId) {
    let call = Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
    let done = started.app().engine.transact(&call, move |unit| {
        Box::pin(async move {
            let (run, runner) = (RunId(Ulid::new()), RunnerId(Ulid::new()));
            let (outputs, replaces, names) = (Outputs::new(), None, BTreeSet::new());
            let mut commands = vec![
                InstallCommand::ReportStackOutputs { runner, outputs, replaces },
                InstallCommand::AdmitRun { run, kind: RunKind::Deploy, components: names },
            ];
            for name in ["base", "shop"] {
                let (step, resource) = (StepId(Ulid::new()), Resource::Component(name.into()));
                let result = StepResult::ComponentDeployed {
                    name: name.into(),
                    component: ComponentId(Ulid::new()),
                    build: BuildId(Ulid::new()),
                    config_version: 1,
                    fingerprint: format!("sha256:{}", "0".repeat(64)).parse().unwrap(),
                    depends_on: BTreeSet::new(),
                    outputs: Outputs::new(),
                };
                commands.push(InstallCommand::Reserve { resource, run, step });
                commands.push(InstallCommand::RecordResult { run, step, result });
                commands.push(InstallCommand::Release { run, step });
            }
            commands.push(InstallCommand::FinishRun { run, outcome: Outcome::Succeeded });
            for command in commands {
                unit.handle::<Install>(install, command).await?;
            }
            Ok(())
        })
    });
    done.await.unwrap();
}

pub(super) fn update_to(version: u32, inputs: &[(&str, Option<&str>)]) -> UpdateInstall {
    let text = |(name, value): &(&str, Option<&str>)| (name.to_string(), value.map(str::to_owned));
    let inputs: BTreeMap<_, _> = inputs.iter().map(text).collect();
    UpdateInstall {
        inputs: Some(inputs).filter(|inputs| !inputs.is_empty()),
        config_version: Some(version),
        reason: Some("CHG-1204".into()),
        ..UpdateInstall::default()
    }
}

fn set_input(name: &str, value: Option<&str>) -> UpdateInstall {
    UpdateInstall { config_version: None, ..update_to(0, &[(name, value)]) }
}

pub(super) async fn cancel_run(owner: &Client, run: RunId) {
    let why = Cancel { reason: "enough".into(), force: false };
    assert!(owner.cancel_run(run, &why).await.unwrap().changed);
    // The cancel also ends the jobs of the run.
    wait_for(async || owner.run(run).await.unwrap().run.ended_at).await;
}

#[tokio::test]
async fn upgrade_with_a_new_input_and_rollback() {
    let (started, owner, created) = with_install().await;
    deploy_version_1(&started, created.id).await;
    owner.sync("shop", bundle_with("2", "zones", "2"), false).await.unwrap();

    // Version 2 requires an input that version 1 lacks. One request must set the version and the
    // input.
    assert_eq!(rejection(owner.update_install("acme", &update_to(2, &[])).await).0, 422);
    assert_eq!(
        rejection(owner.update_install("acme", &set_input("zones", Some("3"))).await).0,
        422
    );
    let moved = owner.update_install("acme", &update_to(2, &[("zones", Some("3"))])).await.unwrap();
    let run = moved.run.unwrap();
    assert_eq!(owner.run(run).await.unwrap().run.kind, "upgrade");

    // The values that a run renders cannot change while it is in progress.
    let excluded = owner.update_install("acme", &update_to(1, &[])).await.unwrap_err().to_string();
    assert!(excluded.contains(&run.to_string()), "{excluded}");
    let excluded = owner.update_install("acme", &set_input("zones", Some("4"))).await;
    assert_eq!(rejection(excluded), (409, "run_in_progress".into()));
    let again = owner.update_install("acme", &update_to(2, &[])).await.unwrap();
    assert_eq!((again.changed, again.run), (false, None));

    // The run changed nothing, so the same request starts another one.
    cancel_run(&owner, run).await;
    let again = owner.update_install("acme", &update_to(2, &[])).await.unwrap();
    let state = owner.install_state("acme", &Default::default()).await.unwrap().state;
    assert_eq!(state["nuon"]["inputs"]["inputs"], serde_json::json!({"zones": "3"}));
    cancel_run(&owner, again.run.unwrap()).await;

    // After a rollback, inputs that version 1 does not declare are kept but not used. The inputs of
    // version 1 are still set.
    let back = owner.update_install("acme", &update_to(1, &[])).await.unwrap().run.unwrap();
    assert_eq!(owner.run(back).await.unwrap().run.kind, "rollback");
    let state = owner.install_state("acme", &Default::default()).await.unwrap().state;
    assert_eq!(state["nuon"]["inputs"]["inputs"], serde_json::json!({"size": "2"}));
    cancel_run(&owner, back).await;
    let less = owner.update_install("acme", &set_input("zones", None)).await.unwrap();
    cancel_run(&owner, less.run.unwrap()).await;
    assert_eq!(rejection(owner.update_install("acme", &set_input("zones", None)).await).0, 422);
    assert_eq!(rejection(owner.update_install("acme", &set_input("size", None)).await).0, 422);
    assert_eq!(rejection(owner.update_install("acme", &update_to(2, &[])).await).0, 422);
}

#[tokio::test]
async fn retry_requires_that_the_install_follows_the_same_version() {
    let (started, owner, created) = with_install().await;
    deploy_version_1(&started, created.id).await;
    let request = RequestRun {
        kind: RequestedKind::Deploy,
        components: vec!["shop".into()],
        action: None,
        reason: Some("first".into()),
        plan_all: false,
    };
    let first = owner.request_run("acme", &request).await.unwrap().run.unwrap();
    let hurry = Cancel { reason: "at once".into(), force: true };
    assert!(owner.cancel_run(first, &hurry).await.unwrap().changed);
    wait_for(async || owner.run(first).await.unwrap().run.ended_at).await;
    let which =
        EventsQuery { event_type: Some("run.cancel_requested".into()), ..EventsQuery::default() };
    let recorded = owner.events(&which).await.unwrap().items;
    assert_eq!(serde_json::to_value(&recorded[0]).unwrap()["payload"]["force"], true);

    let why = ReasonBody { reason: Some("quota was raised".into()) };
    let again = owner.retry_run(first, &why).await.unwrap().run.unwrap();
    let response = owner.run(again).await.unwrap();
    assert_eq!((response.retry_of, response.run.reason), (Some(first), why.reason.clone()));
    let names: Vec<_> = response.dag.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["shop"]);
    cancel_run(&owner, again).await;

    owner.sync("shop", bundle_with("2", "size", "2"), false).await.unwrap();
    let moved = owner.update_install("acme", &update_to(2, &[])).await.unwrap().run.unwrap();
    cancel_run(&owner, moved).await;
    assert_eq!(rejection(owner.retry_run(first, &why).await), (409, "rejected".into()));
}

#[tokio::test]
async fn replaced_runner_does_not_provision_a_torn_down_install() {
    let (started, _owner, created) = with_install().await;
    deploy_version_1(&started, created.id).await;
    let system = || Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
    let (app, install) = (started.app(), created.id);
    let call = system();
    let done = app.engine.transact(&call, move |unit| {
        Box::pin(async move {
            let (run, names) = (RunId(Ulid::new()), BTreeSet::new());
            let admit =
                InstallCommand::AdmitRun { run, kind: RunKind::Teardown, components: names };
            unit.handle::<Install>(install, admit).await?;
            for name in ["base", "shop"] {
                let (step, resource) = (StepId(Ulid::new()), Resource::Component(name.into()));
                let result = StepResult::ComponentDestroyed {
                    name: name.into(),
                    component: ComponentId(Ulid::new()),
                };
                for command in [
                    InstallCommand::Reserve { resource, run, step },
                    InstallCommand::RecordResult { run, step, result },
                    InstallCommand::Release { run, step },
                ] {
                    unit.handle::<Install>(install, command).await?;
                }
            }
            let close = InstallCommand::FinishRun { run, outcome: Outcome::Succeeded };
            unit.handle::<Install>(install, close).await?;
            let before = unit.load::<Install>(install).await?.stack.as_ref().map(|has| has.runner);
            let (runner, outputs) = (RunnerId(Ulid::new()), Outputs::new());
            let report = InstallCommand::ReportStackOutputs { runner, outputs, replaces: before };
            unit.handle::<Install>(install, report).await
        })
    });
    done.await.unwrap();
    // The policy calls this function after a runner reported the stack outputs.
    crate::usecases::runs::provision(app, &system(), install).await.unwrap();
    let state = app.engine.load::<Install>(install).await.unwrap();
    assert!(state.components.is_empty() && state.runs.is_empty(), "{:?}", state.runs);
}

#[tokio::test]
async fn empty_install_deprovisions_without_a_run_and_releases_its_name() {
    let (_started, owner, created) = with_install().await;
    let request = RequestRun {
        kind: RequestedKind::Deprovision,
        components: vec![],
        action: None,
        reason: None,
        plan_all: false,
    };
    assert_eq!(owner.request_run("acme", &request).await.unwrap().run, None);
    let deprovisioned = owner.install("acme").await.unwrap();
    assert_eq!((deprovisioned.id, deprovisioned.state.as_str()), (created.id, "deprovisioned"));
    assert_eq!(
        rejection(owner.create_enrolment_token("acme", &Default::default()).await),
        (409, "deprovisioned".into())
    );
    let other = owner.create_install(&new_install("acme")).await.unwrap();
    assert_eq!(owner.install("acme").await.unwrap().id, other.id);
    assert_eq!(owner.install(&created.id.to_string()).await.unwrap().state, "deprovisioned");
}

#[tokio::test]
async fn run_without_changes_is_rejected_every_time() {
    let (_started, owner, _made) = with_install().await;
    let teardown = RequestRun {
        kind: RequestedKind::Teardown,
        components: vec![],
        action: None,
        reason: Some("the end".into()),
        plan_all: false,
    };
    for _ in 0..2 {
        let rejected = rejection(owner.request_run("acme", &teardown).await);
        assert_eq!(rejected, (409, "no_changes".into()));
    }
}

#[tokio::test]
async fn inputs_for_a_pending_destroy_cannot_be_removed() {
    let (started, owner, created) = with_install().await;
    deploy_version_1(&started, created.id).await;
    owner.sync("shop", bundle_of("2", "zones", None), false).await.unwrap();
    let less = update_to(2, &[("zones", Some("3")), ("size", None)]);
    let message = owner.update_install("acme", &less).await.unwrap_err().to_string();
    assert!(message.contains("base was deployed by version 1"), "{message}");
    let moved = owner.update_install("acme", &update_to(2, &[("zones", Some("3"))])).await.unwrap();
    assert!(moved.run.is_some());
}

#[tokio::test]
async fn rollback_reports_the_inputs_that_it_keeps() {
    let (started, owner, created) = with_install().await;
    super::impact::deploy_desired_state(&started, created.id).await;
    owner.sync("shop", bundle_with("2", "size", "2"), false).await.unwrap();
    let run =
        owner.update_install("acme", &update_to(2, &[("size", Some("5"))])).await.unwrap().run;
    cancel_run(&owner, run.unwrap()).await;
    let back = owner.update_install("acme", &update_to(1, &[])).await.unwrap();
    let (name, before, after) = ("size".into(), Some("2".into()), Some("5".into()));
    assert_eq!(back.kept_inputs, [InputDifference { name, before, after }]);
}

#[tokio::test]
async fn impact_on_one_install_names_no_other() {
    let (started, owner, created) = with_install().await;
    super::impact::deploy_desired_state(&started, created.id).await;
    owner.create_install(&new_install("globex")).await.unwrap();
    owner.sync("shop", bundle_with("2", "size", "2"), false).await.unwrap();
    let which = DiffQuery { install: Some("acme".into()), ..DiffQuery::default() };
    let diff = owner.diff("shop", &which).await.unwrap();
    let names: Vec<_> = diff.impact.iter().map(|impact| impact.name.as_str()).collect();
    assert_eq!((names, diff.remaining_installs), (vec!["acme"], None));
    let which = DiffQuery { install: Some("initech".into()), ..DiffQuery::default() };
    assert_eq!(rejection(owner.diff("shop", &which).await).0, 404);
    let all = owner.diff("shop", &DiffQuery::default()).await.unwrap();
    assert_eq!(all.impact.len(), 2);
}
