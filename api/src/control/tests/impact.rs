//! Impact of a sync on installs.
use std::collections::BTreeSet;

use app_config::model::TriggerKind;
use domain::{
    actor::Actor,
    app::App as AppState,
    ids::{InstallId, RunId, RunnerId, StepId},
    install::{Install, InstallCommand, Resource, StepResult},
    run::{Outcome, RunKind},
};
use event_log::Meta;
use schemas::control::apps::{DiffQuery, Impact};
use ulid::Ulid;

use super::{bundle, bundle_of, bundle_with, new_install, owner, rejection};
use crate::{
    configs::{published, resolved_inputs},
    execute::Call,
    render::desired,
    server::testing::Started,
};

/// Records the desired state of the install's version as its actual state.
pub(super) async fn deploy_desired_state(started: &Started, id: InstallId) {
    let app = started.app();
    let install = app.engine.load::<Install>(id).await.unwrap();
    let of = app.engine.load::<AppState>(install.app.unwrap()).await.unwrap();
    let version = published(&of, install.config_version).unwrap().clone();
    let config = app.configs.get(&app.pool, &version).await.unwrap();
    let inputs = resolved_inputs(&config, &install.inputs).unwrap();
    let given = desired::InstallValues {
        inputs: &inputs,
        stack: &install.stack_outputs(),
        toggles: &install.toggles,
    };
    let desired_state =
        desired::desired_state(&config, &version, given, TriggerKind::Manual).unwrap();
    let call = Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
    let done = app.engine.transact(&call, move |unit| {
        let desired_state = desired_state.clone();
        Box::pin(async move {
            let (run, runner) = (RunId(Ulid::new()), RunnerId(Ulid::new()));
            let names = BTreeSet::new();
            let report = InstallCommand::ReportStackOutputs {
                runner,
                outputs: Default::default(),
                replaces: None,
            };
            let mut commands = vec![
                report,
                InstallCommand::AdmitRun { run, kind: RunKind::Deploy, components: names },
            ];
            for (name, has) in desired_state.components {
                let (step, resource) = (StepId(Ulid::new()), Resource::Component(name.clone()));
                let result = StepResult::ComponentDeployed {
                    name,
                    component: has.component,
                    build: has.build,
                    config_version: install.config_version,
                    fingerprint: has.fingerprint,
                    depends_on: has.depends_on,
                    outputs: Default::default(),
                };
                commands.push(InstallCommand::Reserve { resource, run, step });
                commands.push(InstallCommand::RecordResult { run, step, result });
                commands.push(InstallCommand::Release { run, step });
            }
            commands.push(InstallCommand::FinishRun { run, outcome: Outcome::Succeeded });
            for command in commands {
                unit.handle::<Install>(id, command).await?;
            }
            Ok(())
        })
    });
    done.await.unwrap();
}

/// Formats each impact: the install's name and version, and its planned operations or the problem.
fn impact_lines(impact: &[Impact]) -> Vec<String> {
    let one = |impact: &Impact| {
        let plans: Vec<_> =
            impact.plans.iter().map(|plan| format!("{} {}", plan.operation, plan.name)).collect();
        let suffix = if impact.provisioned { "" } else { " (nothing there)" };
        let problem = impact.problem.clone().unwrap_or_default();
        format!("{}@{}{suffix}: {}{problem}", impact.name, impact.config_version, plans.join(", "))
    };
    impact.iter().map(one).collect()
}

#[tokio::test]
async fn dry_run_reports_the_plan_of_each_install_and_changes_nothing() {
    let started = Started::new().await;
    let owner = owner(&started);
    owner.sync("shop", bundle("1"), false).await.unwrap();
    let acme = owner.create_install(&new_install("acme")).await.unwrap();
    owner.create_install(&new_install("beta")).await.unwrap();
    deploy_desired_state(&started, acme.id).await;
    let would = async |bytes| owner.sync_against("shop", bytes, None).await.unwrap();

    // The same bundle has no impact. A new source of `base` affects it and its dependent `shop`.
    assert_eq!(
        impact_lines(&would(bundle("1")).await.diff.impact),
        ["acme@1: ", "beta@1 (nothing there): apply base, apply shop"]
    );
    let other = would(bundle("2")).await;
    assert_eq!((other.diff.from, other.diff.to, other.version), (Some(1), None, 2));
    let changed: Vec<_> = other.diff.changes.iter().map(|c| (&*c.kind, &*c.name)).collect();
    assert_eq!(changed, [("component", "base")]);
    assert_eq!(impact_lines(&other.diff.impact)[0], "acme@1: apply base, apply shop");
    // A removed component is destroyed after its dependents have changed.
    let removed = would(bundle_of("1", "size", None)).await;
    assert_eq!(impact_lines(&removed.diff.impact)[0], "acme@1: apply shop, destroy base");
    // An install that cannot use the version has a problem.
    let asks = would(bundle_with("1", "zones", "2")).await;
    assert_eq!(
        impact_lines(&asks.diff.impact)[0],
        "acme@1: the input `zones` is required but was not given"
    );
    assert_eq!(owner.app("shop").await.unwrap().version, 1);
    assert!(owner.install("acme").await.unwrap().runs.is_empty());

    // The differences depend on the base version. The impact does not.
    owner.sync("shop", bundle("2"), false).await.unwrap();
    let newest = would(bundle("2")).await;
    assert!(newest.diff.changes.is_empty());
    let first = owner.sync_against("shop", bundle("2"), Some(1)).await.unwrap();
    assert_eq!((first.diff.from, first.diff.changes.len()), (Some(1), 1));
    assert_eq!(first.diff.impact, newest.diff.impact);
    assert_eq!(rejection(owner.sync_against("shop", bundle("2"), Some(9)).await).0, 404);
    let which = DiffQuery { from: Some(1), ..DiffQuery::default() };
    assert_eq!(owner.diff("shop", &which).await.unwrap().impact, first.diff.impact);
}
