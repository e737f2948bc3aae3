//! A partly changed component counts neither as absent nor as completely deployed.
use super::*;

pub fn apply_start() -> (ResourceChange, InstallEvent) {
    apply_start_by(S1)
}

fn apply_start_by(step: StepId) -> (ResourceChange, InstallEvent) {
    let (name, component, depends_on) = ("api".to_string(), COMPONENT, names(&["db"]));
    let (build, config_version) = (BuildId(ulid::Ulid(42)), 2);
    let change = ResourceChange::Component {
        name: name.clone(),
        component,
        build,
        config_version,
        depends_on: depends_on.clone(),
    };
    let run = ONE;
    let event = InstallEvent::ComponentApplyStarted {
        name,
        component,
        run,
        step,
        build,
        config_version,
        depends_on,
    };
    (change, event)
}

pub fn apply_not_run(run: RunId, step: StepId) -> InstallEvent {
    InstallEvent::ComponentApplyNotRun { name: "api".into(), component: COMPONENT, run, step }
}

fn after(history: Vec<InstallEvent>) -> Install {
    crate::testing::replay(history)
}

#[test]
fn only_the_holder_of_a_resource_starts_a_change() {
    let start = |step| InstallCommand::StartApply { run: ONE, step, change: apply_start().0 };
    let held = and(deploying(), [component_reserved("api", ONE, S1)]);
    install(held.clone()).when(start(S1)).then([apply_start().1]);
    install(held).when(start(S2)).then_rejected(InstallError::ResourceNotHeld);
    install(deploying()).when(start(S1)).then_rejected(InstallError::ResourceNotHeld);
    install(vec![]).when(start(S1)).then_rejected(InstallError::NotFound);
    let sandbox = ResourceChange::Sandbox { build: BUILD, config_version: 1 };
    let start = |step| InstallCommand::StartApply { run: ONE, step, change: sandbox.clone() };
    let held = and(deploying(), [InstallEvent::SandboxReserved { run: ONE, step: S1 }]);
    let begun =
        InstallEvent::SandboxApplyStarted { run: ONE, step: S1, build: BUILD, config_version: 1 };
    install(held.clone()).when(start(S1)).then([begun]);
    install(held).when(start(S2)).then_rejected(InstallError::ResourceNotHeld);
}

#[test]
fn a_started_apply_makes_a_component_incomplete() {
    let incomplete = after(and(deploying(), [deployed().1, apply_start().1]));
    let component = &incomplete.components["api"];
    assert_eq!((component.config_version, &component.fingerprint), (2, &None));
    assert_eq!(
        component.outputs,
        outputs("x"),
        "the last reported outputs stay until the next report"
    );
    assert_eq!(incomplete.actual_state().components["api"].fingerprint, None);
    let complete = after(and(deploying(), [apply_start().1, deployed().1]));
    assert_eq!(complete.components["api"].fingerprint, Some(digest(1)));
}

#[test]
fn a_started_apply_keeps_the_earlier_dependencies() {
    let depends_on =
        |history: Vec<InstallEvent>| after(history).components["api"].depends_on.clone();
    assert_eq!(depends_on(vec![deployed().1, apply_start().1]), names(&["db", "net"]));
    assert_eq!(
        depends_on(vec![deployed().1, apply_start().1, apply_start_by(S2).1]),
        names(&["db", "net"])
    );
    assert_eq!(depends_on(vec![apply_start().1, deployed().1]), names(&["net"]));
    // A repeated change therefore destroys the earlier dependency only after `api` no longer uses
    // it.
    let actual = after(vec![deployed().1, apply_start().1]).actual_state();
    assert!(actual.components["api"].depends_on.contains("net"));
}

#[test]
fn an_apply_that_changed_nothing_restores_the_earlier_state() {
    let complete = and(deploying(), [component_reserved("api", ONE, S1), deployed().1]);
    let not_run = and(complete.clone(), [apply_start().1, apply_not_run(ONE, S1)]);
    assert_eq!(after(not_run).components, after(complete).components);
    // The component did not exist before the apply.
    assert!(after(vec![apply_start().1, apply_not_run(ONE, S1)]).components.is_empty());
    // The earlier apply may have changed the component partly.
    let incomplete = after(vec![apply_start().1, apply_start_by(S2).1, apply_not_run(ONE, S2)]);
    assert_eq!(incomplete.components["api"].fingerprint, None);

    let provisioned = InstallEvent::SandboxProvisioned {
        run: ONE,
        step: S2,
        build: BUILD,
        config_version: 1,
        fingerprint: digest(1),
        outputs: outputs("x"),
    };
    let (run, step, build) = (ONE, S1, BuildId(ulid::Ulid(42)));
    let changing = InstallEvent::SandboxApplyStarted { run, step, build, config_version: 2 };
    let not_run = InstallEvent::SandboxApplyNotRun { run, step };
    let before = after(vec![provisioned.clone()]);
    assert_eq!(after(vec![provisioned, changing.clone(), not_run.clone()]), before);
    assert_eq!(after(vec![changing, not_run]).sandbox, None);
}

#[test]
fn only_the_last_apply_can_be_recorded_as_not_run() {
    let api = || Resource::Component("api".into());
    let record = |step, resource| InstallCommand::RecordApplyNotRun { run: ONE, step, resource };
    let held = and(deploying(), [component_reserved("api", ONE, S1)]);
    let begun = and(held.clone(), [apply_start().1]);
    install(begun.clone()).when(record(S1, api())).then([apply_not_run(ONE, S1)]);
    install(begun.clone()).when(record(S2, api())).then_rejected(InstallError::ResourceNotHeld);
    install(held.clone()).when(record(S1, api())).then_nothing();
    install(and(begun.clone(), [apply_not_run(ONE, S1)])).when(record(S1, api())).then_nothing();
    install(and(begun.clone(), [deployed().1])).when(record(S1, api())).then_nothing();
    install(and(begun, [apply_start_by(S2).1])).when(record(S1, api())).then_nothing();
    install(vec![]).when(record(S1, api())).then_rejected(InstallError::NotFound);

    let (run, step) = (ONE, S1);
    let held = and(deploying(), [InstallEvent::SandboxReserved { run, step }]);
    let changing = InstallEvent::SandboxApplyStarted { run, step, build: BUILD, config_version: 1 };
    let not_run = InstallEvent::SandboxApplyNotRun { run, step };
    install(held.clone()).when(record(S1, Resource::Sandbox)).then_nothing();
    install(and(held.clone(), [changing])).when(record(S1, Resource::Sandbox)).then([not_run]);
    install(held).when(record(S2, Resource::Sandbox)).then_rejected(InstallError::ResourceNotHeld);
}

#[test]
fn a_started_apply_prevents_deprovisioning_without_a_run() {
    let sandbox =
        InstallEvent::SandboxApplyStarted { run: ONE, step: S1, build: BUILD, config_version: 1 };
    for begun in [apply_start().1, sandbox] {
        let history = and(ready(), [begun]);
        install(history.clone())
            .when(InstallCommand::Deprovision)
            .then_rejected(InstallError::HasResources);
        let deprovisioning = and(history, [admitted(TWO, RunKind::Deprovision, &[])]);
        let outcome = Outcome::Failed;
        let finished = InstallEvent::RunFinished { run: TWO, outcome };
        install(deprovisioning)
            .when(InstallCommand::FinishRun { run: TWO, outcome })
            .then([finished]);
    }
}
