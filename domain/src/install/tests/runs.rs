//! Admission of runs, and changes that a run in progress blocks.
use super::*;

#[test]
fn an_install_that_was_begun_stays_so_whatever_became_of_it() {
    let begun = |history: Vec<InstallEvent>| {
        let mut install = Install::default();
        history.into_iter().for_each(|event| install.evolve(event));
        install.had_deploy
    };
    let outputs = outputs("eu-1");
    let other = InstallEvent::StackOutputsReported { runner: RunnerId(ulid::Ulid(3)), outputs };
    let denied = InstallEvent::RunFinished { run: ONE, outcome: Outcome::Denied };
    assert!(!begun(and(ready(), [other.clone()])));
    assert!(!begun(and(ready(), [admitted(ONE, RunKind::Action, &[])])));
    let provision = admitted(ONE, RunKind::Provision, &["api"]);
    assert!(begun(and(ready(), [provision, denied, other])));
}

#[test]
fn config_and_inputs_do_not_change_during_a_deploy() {
    let set = text(&[("size", "9")]);
    let (by, reason) = (ANN, None);
    let inputs = || InstallCommand::ChangeInputs {
        set: set.clone(),
        unset: names(&[]),
        by: ANN,
        reason: None,
    };
    let pin = |config_version| InstallCommand::PinConfig { config_version, by: ANN, reason: None };
    let bringing = [
        RunKind::Provision,
        RunKind::Reprovision,
        RunKind::Deploy,
        RunKind::InputUpdate,
        RunKind::Upgrade,
        RunKind::Rollback,
    ];
    for kind in bringing {
        let busy = || install(and(ready(), [admitted(ONE, kind, &["api"])]));
        busy().when(inputs()).then_rejected(InstallError::DeployInProgress { run: ONE, kind });
        busy().when(pin(2)).then_rejected(InstallError::DeployInProgress { run: ONE, kind });
        // Pinning the pinned version is not a change.
        busy().when(pin(1)).then_nothing();
    }
    let pinned = InstallEvent::ConfigPinned { config_version: 2, by, reason };
    for kind in [RunKind::Teardown, RunKind::Deprovision, RunKind::Action] {
        let busy = and(ready(), [admitted(ONE, kind, &[])]);
        install(busy).when(pin(2)).then([pinned.clone()]);
    }
    let closed = InstallEvent::RunFinished { run: ONE, outcome: Outcome::Failed };
    install(and(deploying(), [closed])).when(pin(2)).then([pinned]);
}

#[test]
fn runs_exclude_each_other_by_rule() {
    use RunKind::*;
    let busy = |kind, components: &[&str]| install(and(ready(), [admitted(ONE, kind, components)]));
    let excluded = |kind| InstallError::Excluded { run: ONE, kind };
    install(ready()).when(admit(TWO, Deploy, &["api"])).then([admitted(TWO, Deploy, &["api"])]);
    install(created()).when(admit(ONE, Deploy, &[])).then_rejected(InstallError::NoRunner);
    busy(Deploy, &["api"]).when(admit(ONE, Deploy, &["api"])).then_nothing();
    busy(Deploy, &["api"]).when(admit(TWO, Deploy, &["web"])).then([admitted(
        TWO,
        Deploy,
        &["web"],
    )]);
    busy(Deploy, &["api"]).when(admit(TWO, Deploy, &["api"])).then_rejected(excluded(Deploy));
    busy(Deploy, &["api"]).when(admit(TWO, Rollback, &[])).then_rejected(excluded(Deploy));
    busy(Deploy, &["api"]).when(admit(TWO, Teardown, &[])).then_rejected(excluded(Deploy));
    busy(Teardown, &[]).when(admit(TWO, Deploy, &["api"])).then_rejected(excluded(Teardown));
    busy(Provision, &[]).when(admit(TWO, Action, &[])).then_rejected(excluded(Provision));
    busy(Action, &[]).when(admit(TWO, Deploy, &[])).then([admitted(TWO, Deploy, &[])]);
    busy(Deploy, &[]).when(admit(TWO, Action, &[])).then([admitted(TWO, Action, &[])]);
}

#[test]
fn a_run_is_closed_once() {
    let outcome = Outcome::Succeeded;
    let close = |run| InstallCommand::FinishRun { run, outcome };
    let closed = InstallEvent::RunFinished { run: ONE, outcome };
    install(deploying()).when(close(ONE)).then([closed.clone()]);
    install(and(deploying(), [closed])).when(close(ONE)).then_nothing();
    install(vec![]).when(close(ONE)).then_rejected(InstallError::NotFound);
}

#[test]
fn an_install_is_deprovisioned_when_nothing_of_it_is_left() {
    let outcome = Outcome::Succeeded;
    let close = InstallCommand::FinishRun { run: ONE, outcome };
    let closed = InstallEvent::RunFinished { run: ONE, outcome };
    let going = and(ready(), [admitted(ONE, RunKind::Deprovision, &[])]);
    let gone = InstallEvent::Deprovisioned { run: Some(ONE) };
    install(going.clone()).when(close.clone()).then([closed.clone(), gone.clone()]);
    install(and(going.clone(), [deployed().1])).when(close).then([closed.clone()]);
    // A deprovisioned install admits no runs.
    let over = and(going, [closed, gone]);
    let deploy = admit(TWO, RunKind::Deploy, &["api"]);
    install(over).when(deploy).then_rejected(InstallError::Deprovisioned);
}

#[test]
fn an_install_of_which_nothing_is_left_needs_no_run_to_end() {
    let end = || InstallCommand::Deprovision;
    let gone = InstallEvent::Deprovisioned { run: None };
    install(ready()).when(end()).then([gone.clone()]);
    install(and(ready(), [gone])).when(end()).then_nothing();
    let excluded = InstallError::Excluded { run: ONE, kind: RunKind::Deploy };
    install(deploying()).when(end()).then_rejected(excluded);
    install(and(ready(), [deployed().1])).when(end()).then_rejected(InstallError::HasResources);
    install(vec![]).when(end()).then_rejected(InstallError::NotFound);
}
