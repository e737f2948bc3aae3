//! A deploy plans components with outdated outputs, regardless of the reason why an earlier run did
//! not deploy them.
use super::*;
use crate::run::{
    Target,
    plan::{DesiredComponent, DesiredSandbox, DesiredState, Scope, plan_deploy},
};

/// `api` reads `db` and the sandbox; `web` reads `api`.
fn desired() -> DesiredState {
    let component = |n: u8, depends_on: &[&str], reads_sandbox| DesiredComponent {
        component: COMPONENT,
        build: BUILD,
        depends_on: names(depends_on),
        reads_sandbox,
        fingerprint: digest(n),
    };
    let all = [
        ("api", component(1, &["db"], true)),
        ("db", component(2, &[], false)),
        ("web", component(3, &["api"], false)),
    ];
    DesiredState {
        sandbox: Some(DesiredSandbox { build: BUILD, fingerprint: digest(4) }),
        components: all.into_iter().map(|(name, c)| (name.to_string(), c)).collect(),
        after: vec![],
    }
}

fn reserved(name: &str) -> InstallEvent {
    component_reserved(name, ONE, S1)
}

fn released(name: &str) -> InstallEvent {
    InstallEvent::ComponentReleased { name: name.into(), run: ONE, step: S1 }
}

/// Returns the event for a deploy of this component with these outputs.
fn deploy_of(name: &str, value: &str) -> InstallEvent {
    let DesiredComponent { component, build, depends_on, fingerprint, .. } =
        desired().components[name].clone();
    let (name, outputs) = (name.to_string(), outputs(value));
    InstallEvent::ComponentDeployed {
        name,
        component,
        run: ONE,
        step: S1,
        build,
        config_version: 1,
        fingerprint,
        depends_on,
        outputs,
    }
}

fn sandbox(value: &str) -> InstallEvent {
    InstallEvent::SandboxProvisioned {
        run: ONE,
        step: S1,
        build: BUILD,
        config_version: 1,
        fingerprint: digest(4),
        outputs: outputs(value),
    }
}

fn apply_started(name: &str) -> InstallEvent {
    let DesiredComponent { component, build, depends_on, .. } = desired().components[name].clone();
    let (name, run, step) = (name.into(), ONE, S1);
    InstallEvent::ComponentApplyStarted {
        name,
        component,
        run,
        step,
        build,
        config_version: 2,
        depends_on,
    }
}

fn apply_not_run(name: &str) -> InstallEvent {
    let (name, component) = (name.into(), COMPONENT);
    InstallEvent::ComponentApplyNotRun { name, component, run: ONE, step: S1 }
}

/// Returns the names that a deploy plans on a fully deployed install after these events.
fn planned(then: impl IntoIterator<Item = InstallEvent>) -> Vec<String> {
    let mut history = vec![sandbox("x")];
    for name in ["db", "api", "web"] {
        history.extend([reserved(name), deploy_of(name, "x"), released(name)]);
    }
    history.extend(then);
    let install: Install = crate::testing::replay(history);
    let steps =
        plan_deploy(&desired(), &install.actual_state(), &Scope::Changed, || StepId(ulid::Ulid(1)));
    let name = |target| match target {
        Target::Sandbox { .. } => "sandbox".to_string(),
        Target::Component { name, .. } | Target::Action { name } => name,
    };
    steps.unwrap().into_iter().map(|step| name(step.target)).collect()
}

#[test]
fn a_reader_is_planned_after_an_apply_that_did_not_run_if_outputs_changed() {
    assert!(planned([]).is_empty());
    let not_run = [reserved("api"), apply_started("api"), apply_not_run("api"), released("api")];
    assert!(planned(not_run.clone()).is_empty());
    assert_eq!(planned(and(vec![deploy_of("db", "y")], not_run.clone())), ["api", "web"]);
    assert_eq!(planned(and(vec![sandbox("y")], not_run)), ["api", "web"]);
}

#[test]
fn a_reader_is_planned_until_it_is_deployed() {
    // The earlier run did not deploy `api`: its plan was denied or failed, or the user named other
    // components.
    assert_eq!(planned([deploy_of("db", "y")]), ["api", "web"]);
    assert_eq!(planned([deploy_of("db", "y"), reserved("api"), released("api")]), ["api", "web"]);
    let read = [reserved("api"), deploy_of("api", "x"), released("api")];
    assert!(planned(and(vec![deploy_of("db", "y")], read)).is_empty());
    // Identical outputs are not a change.
    assert!(planned([deploy_of("db", "x"), sandbox("x")]).is_empty());
}

#[test]
fn outputs_that_change_during_a_step_count_as_unread() {
    // `api` read the outputs before `db` changed them.
    let concurrent =
        [reserved("api"), deploy_of("db", "y"), deploy_of("api", "x"), released("api")];
    assert_eq!(planned(concurrent.clone()), ["api", "web"]);
    let read_again = [reserved("api"), deploy_of("api", "x"), released("api")];
    assert!(planned(and(concurrent.to_vec(), read_again)).is_empty());
}

#[test]
fn outputs_of_a_restored_component_count_as_unread() {
    let destroyed = InstallEvent::ComponentDestroyed {
        name: "db".into(),
        component: COMPONENT,
        run: ONE,
        step: S1,
    };
    assert_eq!(planned([destroyed, deploy_of("db", "x")]), ["api", "web"]);
}
