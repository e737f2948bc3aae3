//! A deploy plans components with outdated outputs, regardless of the reason why an earlier run did
//! not deploy them.
use super::*;
use crate::run::{
    Target,
    plan::{DesiredComponent, DesiredSandbox, DesiredState, Scope, plan_deploy},
};

/// `api` reads `db` and the sandbox; `web` reads `api`.
fn wanted() -> DesiredState {
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
fn brought(name: &str, said: &str) -> InstallEvent {
    let DesiredComponent { component, build, depends_on, fingerprint, .. } =
        wanted().components[name].clone();
    let (name, outputs) = (name.to_string(), outputs(said));
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

fn sandbox(said: &str) -> InstallEvent {
    InstallEvent::SandboxProvisioned {
        run: ONE,
        step: S1,
        build: BUILD,
        config_version: 1,
        fingerprint: digest(4),
        outputs: outputs(said),
    }
}

fn changing(name: &str) -> InstallEvent {
    let DesiredComponent { component, build, depends_on, .. } = wanted().components[name].clone();
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

fn unchanged(name: &str) -> InstallEvent {
    let (name, component) = (name.into(), COMPONENT);
    InstallEvent::ComponentApplyNotRun { name, component, run: ONE, step: S1 }
}

/// Returns the names that a deploy plans on a fully deployed install after these events.
fn planned(then: impl IntoIterator<Item = InstallEvent>) -> Vec<String> {
    let mut history = vec![sandbox("x")];
    for name in ["db", "api", "web"] {
        history.extend([reserved(name), brought(name, "x"), released(name)]);
    }
    history.extend(then);
    let install: Install = crate::testing::replay(history);
    let steps =
        plan_deploy(&wanted(), &install.actual_state(), &Scope::Changed, || StepId(ulid::Ulid(1)));
    let name = |target| match target {
        Target::Sandbox { .. } => "sandbox".to_string(),
        Target::Component { name, .. } | Target::Action { name } => name,
    };
    steps.unwrap().into_iter().map(|step| name(step.target)).collect()
}

#[test]
fn an_apply_that_never_ran_leaves_a_reader_that_is_planned_if_what_it_reads_changed() {
    assert!(planned([]).is_empty());
    let never = [reserved("api"), changing("api"), unchanged("api"), released("api")];
    assert!(planned(never.clone()).is_empty());
    assert_eq!(planned(and(vec![brought("db", "y")], never.clone())), ["api", "web"]);
    assert_eq!(planned(and(vec![sandbox("y")], never)), ["api", "web"]);
}

#[test]
fn a_reader_is_planned_until_it_is_deployed() {
    // The earlier run did not deploy `api`: its plan was denied or failed, or the user named other
    // components.
    assert_eq!(planned([brought("db", "y")]), ["api", "web"]);
    assert_eq!(planned([brought("db", "y"), reserved("api"), released("api")]), ["api", "web"]);
    let read = [reserved("api"), brought("api", "x"), released("api")];
    assert!(planned(and(vec![brought("db", "y")], read)).is_empty());
    // Identical outputs are not a change.
    assert!(planned([brought("db", "x"), sandbox("x")]).is_empty());
}

#[test]
fn outputs_that_change_during_a_step_count_as_unread() {
    // `api` read the outputs before `db` changed them.
    let late = [reserved("api"), brought("db", "y"), brought("api", "x"), released("api")];
    assert_eq!(planned(late.clone()), ["api", "web"]);
    let again = [reserved("api"), brought("api", "x"), released("api")];
    assert!(planned(and(late.to_vec(), again)).is_empty());
}

#[test]
fn outputs_of_a_restored_component_count_as_unread() {
    let gone = InstallEvent::ComponentDestroyed {
        name: "db".into(),
        component: COMPONENT,
        run: ONE,
        step: S1,
    };
    assert_eq!(planned([gone, brought("db", "x")]), ["api", "web"]);
}
