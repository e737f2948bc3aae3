//! Installs after an apply that failed, or that never ran.
use std::collections::BTreeSet;

use cli::client::Client;
use domain::{
    actor::Actor,
    digest::Digest,
    ids::{BuildId, ComponentId, InstallId, JobId, RunId, RunnerId, StepId},
    install::{Install, InstallCommand, Outputs, Resource, ResourceChange},
    job::{Job, JobClass, JobCommand, JobKind, Origin, Work},
    run::{
        Approval, Cause, Operation, Outcome, Request, Run, RunCommand, RunKind, StepFailure,
        StepPlan, StepSpec, Target,
    },
};
use event_log::Meta;
use schemas::control::{
    apps::{DiffQuery, InputDifference},
    audit::EventsQuery,
    installs::UpdateInstall,
    runs::{RequestRun, RequestedKind},
};
use ulid::Ulid;

use super::{
    bundle_with, rejection,
    version_changes::{cancel_run, deploy_version_1, update_to},
    with_install,
};
use crate::{execute::Call, server::testing::Started};

/// Records a runner, and a failed apply of one component.
async fn failed_apply(started: &Started, install: InstallId, name: &'static str) {
    let call = Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
    let done = started.app().engine.transact(&call, move |unit| {
        Box::pin(async move {
            let (run, runner) = (RunId(Ulid::new()), RunnerId(Ulid::new()));
            let (outputs, step) = (Outputs::new(), StepId(Ulid::new()));
            let changing = ResourceChange::Component {
                name: name.into(),
                component: ComponentId(Ulid::new()),
                build: BuildId(Ulid::new()),
                config_version: 1,
                depends_on: BTreeSet::new(),
            };
            for command in [
                InstallCommand::ReportStackOutputs { runner, outputs, replaces: None },
                InstallCommand::AdmitRun {
                    run,
                    kind: RunKind::Deploy,
                    components: BTreeSet::new(),
                },
                InstallCommand::Reserve { resource: Resource::Component(name.into()), run, step },
                InstallCommand::StartApply { run, step, change: changing },
                InstallCommand::Release { run, step },
                InstallCommand::FinishRun { run, outcome: Outcome::Failed },
            ] {
                unit.handle::<Install>(install, command).await?;
            }
            Ok(())
        })
    });
    done.await.unwrap();
}

#[tokio::test]
async fn incomplete_component_is_planned_and_deprovisioned() {
    let (started, owner, created) = with_install().await;
    failed_apply(&started, created.id, "shop").await;
    let names = async |run| {
        let run = owner.run(run).await.unwrap();
        run.dag.iter().map(|step| step.name.clone()).collect::<Vec<_>>()
    };
    let shop = async || {
        let response = owner.install("acme").await.unwrap();
        response.components.into_iter().find(|part| part.name == "shop").unwrap()
    };
    // These commands bypass the API, so no request waits for their projection.
    for _ in 0..100 {
        if shop().await.state != "absent" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let shop = shop().await;
    assert_eq!((shop.state.as_str(), shop.config_version), ("incomplete", Some(1)));
    let again = owner.update_install("acme", &update_to(1, &[])).await.unwrap().run.unwrap();
    assert!(names(again).await.contains(&"shop".to_string()));
    cancel_run(&owner, again).await;
    let request = RequestRun {
        kind: RequestedKind::Deprovision,
        components: vec![],
        action: None,
        reason: Some("over".into()),
        plan_all: false,
    };
    let over = owner.request_run("acme", &request).await.unwrap().run.unwrap();
    assert_eq!(names(over).await, ["shop"]);
}

/// Fails every step of this run and finishes it on the install.
async fn fail(started: &Started, install: InstallId, run: RunId) {
    let call = Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
    let done = started.app().engine.transact(&call, move |unit| {
        Box::pin(async move {
            let steps = unit.load::<Run>(run).await?.steps.clone();
            for step in steps.iter().map(|at| at.spec.step) {
                let (reason, detail) = (StepFailure::JobLost, "lost".into());
                let may_retry = false;
                let failed = RunCommand::FailStep { step, job: None, reason, detail, may_retry };
                unit.handle::<Run>(run, failed).await?;
            }
            let outcome = Outcome::Failed;
            unit.handle::<Install>(install, InstallCommand::FinishRun { run, outcome }).await?;
            Ok(())
        })
    });
    done.await.unwrap();
}

/// Waits until the install has this state.
async fn wait_for_state(owner: &Client, state: &str) {
    for _ in 0..200 {
        if owner.install("acme").await.unwrap().state == state {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(owner.install("acme").await.unwrap().state, state);
}

#[tokio::test]
async fn rollback_without_a_run_makes_a_failed_install_active() {
    let (started, owner, created) = with_install().await;
    super::impact::deploy_desired_state(&started, created.id).await;
    wait_for_state(&owner, "active").await;
    owner.sync("shop", bundle_with("2", "zones", "2"), false).await.unwrap();
    let upgrade = update_to(2, &[("zones", Some("3")), ("size", None)]);
    let run = owner.update_install("acme", &upgrade).await.unwrap().run.unwrap();
    wait_for_state(&owner, "updating").await;
    fail(&started, created.id, run).await;
    wait_for_state(&owner, "failed").await;

    // The diff shows which inputs differed at version 1 and would be kept.
    let (from, to_version, install) = (Some(2), Some(1), Some("acme".to_owned()));
    let which = DiffQuery { from, to: to_version, install, ..DiffQuery::default() };
    let impacts = owner.diff("shop", &which).await.unwrap().impact;
    let differ = |name: &str, before: Option<&str>, after: Option<&str>| InputDifference {
        name: name.into(),
        before: before.map(str::to_owned),
        after: after.map(str::to_owned),
    };
    let differences = [differ("size", Some("2"), None), differ("zones", None, Some("3"))];
    assert_eq!(impacts[0].inputs, differences);
    assert!(impacts[0].problem.is_some(), "version 1 requires the input that the upgrade removed");
    let rejected = rejection(owner.update_install("acme", &update_to(1, &[])).await);
    assert_eq!(rejected.0, 422);
    let which = DiffQuery { inputs_of: Some(1), ..which };
    let impacts = owner.diff("shop", &which).await.unwrap().impact;
    assert_eq!((impacts[0].problem.as_ref(), &impacts[0].plans), (None, &vec![]));

    let never = UpdateInstall { inputs_of: Some(7), ..update_to(1, &[]) };
    assert_eq!(rejection(owner.update_install("acme", &never).await).0, 404);
    let back = UpdateInstall { inputs_of: Some(1), ..update_to(1, &[]) };
    let done = owner.update_install("acme", &back).await.unwrap();
    assert_eq!((done.run, done.kept_inputs), (None, vec![]));
    wait_for_state(&owner, "active").await;
    let inputs = owner.install("acme").await.unwrap().inputs;
    assert_eq!(serde_json::json!(inputs), serde_json::json!({"size": "2"}));
}

/// Queues an apply of version 2 of this component.
async fn queued_apply(started: &Started, install: InstallId, name: &'static str) -> JobId {
    let job = JobId(Ulid::new());
    let call = Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
    let done = started.app().engine.transact(&call, move |unit| {
        Box::pin(async move {
            let (run, step) = (RunId(Ulid::new()), StepId(Ulid::new()));
            let (kind, names) = (RunKind::Upgrade, BTreeSet::from([name.to_owned()]));
            let resource = Resource::Component(name.into());
            for command in [
                InstallCommand::AdmitRun { run, kind, components: names },
                InstallCommand::Reserve { resource, run, step },
            ] {
                unit.handle::<Install>(install, command).await?;
            }
            let (component, build) = (ComponentId(Ulid::new()), BuildId(Ulid::new()));
            let (name, depends_on, config_version) = (name.to_owned(), BTreeSet::new(), 2);
            let changing = ResourceChange::Component {
                name: name.clone(),
                component,
                build,
                config_version,
                depends_on: depends_on.clone(),
            };
            let digest: Digest = format!("sha256:{:064x}", 1).parse().unwrap();
            let (cause, by, reason) = (Cause::Requested, Actor::System, None);
            let plan_all = false;
            let request = Request { install, kind, cause, by, config_version, reason, plan_all };
            let target = Target::Component { component, name, build, depends_on };
            let (operation, fingerprint) = (Operation::Apply, Some(digest.clone()));
            let steps = vec![StepSpec {
                step,
                target,
                operation,
                depends_on: vec![],
                fingerprint,
                options: Default::default(),
            }];
            let (plan_job, preflight) = (JobId(Ulid::new()), JobId(Ulid::new()));
            let summary = digest.clone();
            let plan = StepPlan {
                digest: digest.clone(),
                summary,
                details: None,
                noop: false,
                add: 1,
                change: 0,
                destroy: 0,
            };
            for command in [
                RunCommand::Request { request, steps, position: 1 },
                RunCommand::StartPreflight { job: preflight },
                RunCommand::RecordChecks { job: preflight, checks: vec![] },
                RunCommand::StartStep { step, job: plan_job },
                RunCommand::RecordPlan { job: plan_job, plan, approval: Approval::Automatic },
                RunCommand::StartApply { step, job },
            ] {
                unit.handle::<Run>(run, command).await?;
            }
            let work = Work {
                kind: JobKind::Apply,
                class: JobClass::Mutating,
                attempts: 2,
                manifest: digest,
                origin: Origin::Step { install, run, step },
                deadline_ms: 60_000,
                queue_ttl_ms: 60_000,
            };
            unit.handle::<Job>(job, JobCommand::Queue(work)).await?;
            let begin = InstallCommand::StartApply { run, step, change: changing };
            unit.handle::<Install>(install, begin).await.map(drop)
        })
    });
    done.await.unwrap();
    job
}

#[tokio::test]
async fn unclaimed_apply_restores_the_previous_state() {
    let (started, owner, created) = with_install().await;
    deploy_version_1(&started, created.id).await;
    let has = async || started.app().engine.load::<Install>(created.id).await.unwrap();
    let before = has().await;
    let job = queued_apply(&started, created.id, "shop").await;
    let previous = has().await.components["shop"].clone();
    assert_eq!((previous.config_version, previous.fingerprint), (2, None));
    let call = Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
    let cancel =
        || JobCommand::RequestCancel { by: Actor::System, reason: "wrong".into(), force: false };
    let done = started.app().engine.transact(&call, move |unit| {
        Box::pin(async move { unit.handle::<Job>(job, cancel()).await.map(drop) })
    });
    done.await.unwrap();
    for _ in 0..250 {
        if has().await.runs.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(has().await.components, before.components);
    let query = EventsQuery {
        event_type: Some("install.component_apply_not_run".into()),
        ..EventsQuery::default()
    };
    assert_eq!(owner.events(&query).await.unwrap().items.len(), 1);
}
