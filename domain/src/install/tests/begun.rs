//! A partly changed component never counts as absent, nor as deployed from the config.
use super::*;

pub fn changing() -> (ResourceChange, InstallEvent) {
    changing_by(S1)
}

fn changing_by(step: StepId) -> (ResourceChange, InstallEvent) {
    let (name, component, depends_on) = ("api".to_string(), COMPONENT, names(&["db"]));
    let (build, config_version) = (BuildId(ulid::Ulid(42)), 2);
    let asked = ResourceChange::Component {
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
    (asked, event)
}

pub fn unchanged(run: RunId, step: StepId) -> InstallEvent {
    InstallEvent::ComponentApplyNotRun { name: "api".into(), component: COMPONENT, run, step }
}

fn after(history: Vec<InstallEvent>) -> Install {
    crate::testing::replay(history)
}

#[test]
fn only_the_holder_of_a_resource_starts_a_change() {
    let begin = |step| InstallCommand::StartApply { run: ONE, step, change: changing().0 };
    let held = and(deploying(), [component_reserved("api", ONE, S1)]);
    install(held.clone()).when(begin(S1)).then([changing().1]);
    install(held).when(begin(S2)).then_rejected(InstallError::ResourceNotHeld);
    install(deploying()).when(begin(S1)).then_rejected(InstallError::ResourceNotHeld);
    install(vec![]).when(begin(S1)).then_rejected(InstallError::NotFound);
    let sandbox = ResourceChange::Sandbox { build: BUILD, config_version: 1 };
    let begin = |step| InstallCommand::StartApply { run: ONE, step, change: sandbox.clone() };
    let held = and(deploying(), [InstallEvent::SandboxReserved { run: ONE, step: S1 }]);
    let begun =
        InstallEvent::SandboxApplyStarted { run: ONE, step: S1, build: BUILD, config_version: 1 };
    install(held.clone()).when(begin(S1)).then([begun]);
    install(held).when(begin(S2)).then_rejected(InstallError::ResourceNotHeld);
}

#[test]
fn a_started_apply_makes_a_component_incomplete() {
    let half = after(and(deploying(), [deployed().1, changing().1]));
    let has = &half.components["api"];
    assert_eq!((has.config_version, &has.fingerprint), (2, &None));
    assert_eq!(has.outputs, outputs("x"), "the last reported outputs stay until the next report");
    assert_eq!(half.actual_state().components["api"].fingerprint, None);
    let whole = after(and(deploying(), [changing().1, deployed().1]));
    assert_eq!(whole.components["api"].fingerprint, Some(digest(1)));
}

#[test]
fn a_started_apply_keeps_the_earlier_dependencies() {
    let depends_on =
        |history: Vec<InstallEvent>| after(history).components["api"].depends_on.clone();
    assert_eq!(depends_on(vec![deployed().1, changing().1]), names(&["db", "net"]));
    assert_eq!(
        depends_on(vec![deployed().1, changing().1, changing_by(S2).1]),
        names(&["db", "net"])
    );
    assert_eq!(depends_on(vec![changing().1, deployed().1]), names(&["net"]));
    // A repeated change therefore destroys the earlier dependency only after `api` no longer uses
    // it.
    let has = after(vec![deployed().1, changing().1]).actual_state();
    assert!(has.components["api"].depends_on.contains("net"));
}

#[test]
fn an_apply_that_changed_nothing_restores_the_earlier_state() {
    let whole = and(deploying(), [component_reserved("api", ONE, S1), deployed().1]);
    let again = and(whole.clone(), [changing().1, unchanged(ONE, S1)]);
    assert_eq!(after(again).components, after(whole).components);
    // The component did not exist before the apply.
    assert!(after(vec![changing().1, unchanged(ONE, S1)]).components.is_empty());
    // The earlier apply may have changed the component partly.
    let half = after(vec![changing().1, changing_by(S2).1, unchanged(ONE, S2)]);
    assert_eq!(half.components["api"].fingerprint, None);

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
    let same = InstallEvent::SandboxApplyNotRun { run, step };
    let before = after(vec![provisioned.clone()]);
    assert_eq!(after(vec![provisioned, changing.clone(), same.clone()]), before);
    assert_eq!(after(vec![changing, same]).sandbox, None);
}

#[test]
fn only_the_last_apply_can_be_recorded_as_unchanged() {
    let api = || Resource::Component("api".into());
    let said = |step, resource| InstallCommand::RecordApplyNotRun { run: ONE, step, resource };
    let held = and(deploying(), [component_reserved("api", ONE, S1)]);
    let begun = and(held.clone(), [changing().1]);
    install(begun.clone()).when(said(S1, api())).then([unchanged(ONE, S1)]);
    install(begun.clone()).when(said(S2, api())).then_rejected(InstallError::ResourceNotHeld);
    install(held.clone()).when(said(S1, api())).then_nothing();
    install(and(begun.clone(), [unchanged(ONE, S1)])).when(said(S1, api())).then_nothing();
    install(and(begun.clone(), [deployed().1])).when(said(S1, api())).then_nothing();
    install(and(begun, [changing_by(S2).1])).when(said(S1, api())).then_nothing();
    install(vec![]).when(said(S1, api())).then_rejected(InstallError::NotFound);

    let (run, step) = (ONE, S1);
    let held = and(deploying(), [InstallEvent::SandboxReserved { run, step }]);
    let changing = InstallEvent::SandboxApplyStarted { run, step, build: BUILD, config_version: 1 };
    let same = InstallEvent::SandboxApplyNotRun { run, step };
    install(held.clone()).when(said(S1, Resource::Sandbox)).then_nothing();
    install(and(held.clone(), [changing])).when(said(S1, Resource::Sandbox)).then([same]);
    install(held).when(said(S2, Resource::Sandbox)).then_rejected(InstallError::ResourceNotHeld);
}

#[test]
fn a_started_apply_prevents_deprovisioning_without_a_run() {
    let sandbox =
        InstallEvent::SandboxApplyStarted { run: ONE, step: S1, build: BUILD, config_version: 1 };
    for begun in [changing().1, sandbox] {
        let left = and(ready(), [begun]);
        install(left.clone())
            .when(InstallCommand::Deprovision)
            .then_rejected(InstallError::HasResources);
        let going = and(left, [admitted(TWO, RunKind::Deprovision, &[])]);
        let outcome = Outcome::Failed;
        let closed = InstallEvent::RunFinished { run: TWO, outcome };
        install(going).when(InstallCommand::FinishRun { run: TWO, outcome }).then([closed]);
    }
}
