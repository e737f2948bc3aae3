//! Admission of runs, and changes that a run in progress blocks.
use super::*;

#[test]
fn an_install_had_a_deploy_even_if_the_run_was_denied() {
    let had_deploy_after = |history: Vec<InstallEvent>| {
        let mut install = Install::default();
        history.into_iter().for_each(|event| install.evolve(event));
        install.had_deploy
    };
    let outputs = outputs("eu-1");
    let other = InstallEvent::StackOutputsReported { runner: RunnerId(ulid::Ulid(3)), outputs };
    let denied = InstallEvent::RunFinished { run: ONE, outcome: Outcome::Denied };
    assert!(!had_deploy_after(and(ready(), [other.clone()])));
    assert!(!had_deploy_after(and(ready(), [admitted(ONE, RunKind::Action, &[])])));
    let provision = admitted(ONE, RunKind::Provision, &["api"]);
    assert!(had_deploy_after(and(ready(), [provision, denied, other])));
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
    let deploys = [
        RunKind::Provision,
        RunKind::Reprovision,
        RunKind::Deploy,
        RunKind::InputUpdate,
        RunKind::Upgrade,
        RunKind::Rollback,
    ];
    for kind in deploys {
        let with_run = || install(and(ready(), [admitted(ONE, kind, &["api"])]));
        with_run().when(inputs()).then_rejected(InstallError::DeployInProgress { run: ONE, kind });
        with_run().when(pin(2)).then_rejected(InstallError::DeployInProgress { run: ONE, kind });
        // Pinning the pinned version is not a change.
        with_run().when(pin(1)).then_nothing();
    }
    let pinned = InstallEvent::ConfigPinned { config_version: 2, by, reason };
    for kind in [RunKind::Teardown, RunKind::Deprovision, RunKind::Action, RunKind::Drift] {
        let with_run = and(ready(), [admitted(ONE, kind, &[])]);
        install(with_run).when(pin(2)).then([pinned.clone()]);
    }
    let finished = InstallEvent::RunFinished { run: ONE, outcome: Outcome::Failed };
    install(and(deploying(), [finished])).when(pin(2)).then([pinned]);
}

#[test]
fn runs_exclude_each_other_by_rule() {
    use RunKind::*;
    let with_run =
        |kind, components: &[&str]| install(and(ready(), [admitted(ONE, kind, components)]));
    let excluded = |kind| InstallError::Excluded { run: ONE, kind };
    install(ready()).when(admit(TWO, Deploy, &["api"])).then([admitted(TWO, Deploy, &["api"])]);
    install(created()).when(admit(ONE, Deploy, &[])).then_rejected(InstallError::NoRunner);
    with_run(Deploy, &["api"]).when(admit(ONE, Deploy, &["api"])).then_nothing();
    with_run(Deploy, &["api"]).when(admit(TWO, Deploy, &["web"])).then([admitted(
        TWO,
        Deploy,
        &["web"],
    )]);
    with_run(Deploy, &["api"]).when(admit(TWO, Deploy, &["api"])).then_rejected(excluded(Deploy));
    with_run(Deploy, &["api"]).when(admit(TWO, Rollback, &[])).then_rejected(excluded(Deploy));
    with_run(Deploy, &["api"]).when(admit(TWO, Teardown, &[])).then_rejected(excluded(Deploy));
    with_run(Teardown, &[]).when(admit(TWO, Deploy, &["api"])).then_rejected(excluded(Teardown));
    with_run(Provision, &[]).when(admit(TWO, Action, &[])).then_rejected(excluded(Provision));
    with_run(Action, &[]).when(admit(TWO, Deploy, &[])).then([admitted(TWO, Deploy, &[])]);
    with_run(Deploy, &[]).when(admit(TWO, Action, &[])).then([admitted(TWO, Action, &[])]);
    // A drift check can run concurrently with deploys, actions and other checks of the same
    // components.
    for concurrent in [Deploy, InputUpdate, Upgrade, Rollback, Action, Drift] {
        let events = [admitted(TWO, Drift, &["api"])];
        with_run(concurrent, &["api"]).when(admit(TWO, Drift, &["api"])).then(events);
        let events = [admitted(TWO, concurrent, &["api"])];
        with_run(Drift, &["api"]).when(admit(TWO, concurrent, &["api"])).then(events);
    }
    for alone in [Provision, Reprovision, Teardown, Deprovision] {
        let check = admit(TWO, Drift, &["api"]);
        with_run(alone, &["api"]).when(check).then_rejected(excluded(alone));
        with_run(Drift, &["api"]).when(admit(TWO, alone, &[])).then_rejected(excluded(Drift));
    }
}

#[test]
fn a_run_finishes_once() {
    let outcome = Outcome::Succeeded;
    let finish = |run| InstallCommand::FinishRun { run, outcome };
    let finished = InstallEvent::RunFinished { run: ONE, outcome };
    install(deploying()).when(finish(ONE)).then([finished.clone()]);
    install(and(deploying(), [finished])).when(finish(ONE)).then_nothing();
    install(vec![]).when(finish(ONE)).then_rejected(InstallError::NotFound);
}

#[test]
fn an_install_is_deprovisioned_when_it_has_no_resources() {
    let outcome = Outcome::Succeeded;
    let finish = InstallCommand::FinishRun { run: ONE, outcome };
    let finished = InstallEvent::RunFinished { run: ONE, outcome };
    let deprovisioning = and(ready(), [admitted(ONE, RunKind::Deprovision, &[])]);
    let deprovisioned = InstallEvent::Deprovisioned { run: Some(ONE) };
    install(deprovisioning.clone())
        .when(finish.clone())
        .then([finished.clone(), deprovisioned.clone()]);
    install(and(deprovisioning.clone(), [deployed().1])).when(finish).then([finished.clone()]);
    // A deprovisioned install admits no runs.
    let over = and(deprovisioning, [finished, deprovisioned]);
    let deploy = admit(TWO, RunKind::Deploy, &["api"]);
    install(over).when(deploy).then_rejected(InstallError::Deprovisioned);
}

#[test]
fn an_install_without_resources_is_deprovisioned_without_a_run() {
    let end = || InstallCommand::Deprovision;
    let deprovisioned = InstallEvent::Deprovisioned { run: None };
    install(ready()).when(end()).then([deprovisioned.clone()]);
    install(and(ready(), [deprovisioned])).when(end()).then_nothing();
    let excluded = InstallError::Excluded { run: ONE, kind: RunKind::Deploy };
    install(deploying()).when(end()).then_rejected(excluded);
    install(and(ready(), [deployed().1])).when(end()).then_rejected(InstallError::HasResources);
    install(vec![]).when(end()).then_rejected(InstallError::NotFound);
}
