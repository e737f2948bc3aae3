//! What an apply may have left half done is never taken for absent, nor for what the config says.
use super::*;

/// An apply of `api` in version 2, which needs another than before.
pub fn changing() -> (Changing, InstallEvent) {
    changing_by(S1)
}

fn changing_by(step: StepId) -> (Changing, InstallEvent) {
    let (name, component, needs) = ("api".to_string(), COMPONENT, names(&["db"]));
    let (build, config_version) = (BuildId(ulid::Ulid(42)), 2);
    let asked = Changing::Component {
        name: name.clone(),
        component,
        build,
        config_version,
        needs: needs.clone(),
    };
    let run = ONE;
    let fact = InstallEvent::ComponentChanging {
        name,
        component,
        run,
        step,
        build,
        config_version,
        needs,
    };
    (asked, fact)
}

fn after(history: Vec<InstallEvent>) -> Install {
    crate::testing::replay(history)
}

#[test]
fn only_who_holds_a_thing_begins_to_change_it() {
    let begin = |step| InstallCommand::Begin { run: ONE, step, changing: changing().0 };
    let held = and(deploying(), [component_reserved("api", ONE, S1)]);
    install(held.clone()).when(begin(S1)).then([changing().1]);
    install(held).when(begin(S2)).refused(InstallError::NotHolding);
    install(deploying()).when(begin(S1)).refused(InstallError::NotHolding);
    install(vec![]).when(begin(S1)).refused(InstallError::NotFound);
    let sandbox = Changing::Sandbox { build: BUILD, config_version: 1 };
    let begin = |step| InstallCommand::Begin { run: ONE, step, changing: sandbox.clone() };
    let held = and(deploying(), [InstallEvent::SandboxReserved { run: ONE, step: S1 }]);
    let begun =
        InstallEvent::SandboxChanging { run: ONE, step: S1, build: BUILD, config_version: 1 };
    install(held.clone()).when(begin(S1)).then([begun]);
    install(held).when(begin(S2)).refused(InstallError::NotHolding);
}

#[test]
fn what_an_apply_began_to_change_is_there_and_is_not_what_it_was() {
    let half = after(and(deploying(), [deployed().1, changing().1]));
    let has = &half.components["api"];
    assert_eq!((has.config_version, &has.fingerprint), (2, &None));
    assert_eq!(has.outputs, outputs("x"), "what was reported before stays until there is more");
    assert_eq!(half.present().components["api"].fingerprint, None);
    let whole = after(and(deploying(), [changing().1, deployed().1]));
    assert_eq!(whole.components["api"].fingerprint, Some(digest(1)));
}

#[test]
fn whose_apply_was_the_first_is_known_until_there_is_another_or_one_succeeds() {
    let first = |history: Vec<InstallEvent>| after(history).components["api"].first == Some(S1);
    let another = changing_by(S2).1;
    assert!(first(vec![changing().1]));
    assert!(first(vec![changing().1, changing().1]));
    assert!(!first(vec![changing().1, another]));
    assert!(!first(vec![deployed().1, changing().1]));
    assert!(!first(vec![changing().1, deployed().1]));
}

#[test]
fn an_install_of_which_something_was_begun_is_not_gone() {
    let sandbox =
        InstallEvent::SandboxChanging { run: ONE, step: S1, build: BUILD, config_version: 1 };
    for begun in [changing().1, sandbox] {
        let left = and(ready(), [begun]);
        install(left.clone()).when(InstallCommand::Deprovision).refused(InstallError::NotGone);
        let going = and(left, [admitted(TWO, RunKind::Deprovision, &[])]);
        let outcome = Outcome::Failed;
        let closed = InstallEvent::RunClosed { run: TWO, outcome };
        install(going).when(InstallCommand::CloseRun { run: TWO, outcome }).then([closed]);
    }
}
