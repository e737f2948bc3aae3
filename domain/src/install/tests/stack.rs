//! Runner and stack outputs of an install.
use super::*;

#[test]
fn an_install_has_one_runner() {
    let report = |runner, replaces| {
        let outputs = outputs("eu-1");
        InstallCommand::ReportStackOutputs { runner, outputs, replaces }
    };
    let other = RunnerId(ulid::Ulid(3));
    let rejection = || InstallError::HasRunner { runner: RUNNER };
    install(created()).when(report(RUNNER, None)).then([ready().remove(1)]);
    install(ready()).when(report(RUNNER, None)).then_nothing();
    install(ready()).when(report(other, None)).then_rejected(rejection());
    install(vec![]).when(report(RUNNER, None)).then_rejected(InstallError::NotFound);
    // Another runner may replace only the revoked runner of the install.
    let second = InstallEvent::StackOutputsReported { runner: other, outputs: outputs("eu-1") };
    install(ready()).when(report(other, Some(RUNNER))).then([second.clone()]);
    install(ready()).when(report(other, Some(other))).then_rejected(rejection());
    install(and(ready(), [second])).when(report(other, Some(RUNNER))).then_nothing();
}

#[test]
fn stack_outputs_of_the_runner_take_precedence() {
    let set_outputs = |region: &str| InstallCommand::SetStackOutputs {
        outputs: outputs(region),
        by: ANN,
        reason: change_reason(),
    };
    let outputs_set = |region: &str| InstallEvent::StackOutputsSet {
        outputs: outputs(region),
        by: ANN,
        reason: change_reason(),
    };
    install(created()).when(set_outputs("eu-2")).then([outputs_set("eu-2")]);
    install(and(created(), [outputs_set("eu-2")])).when(set_outputs("eu-2")).then_nothing();
    install(vec![]).when(set_outputs("eu-2")).then_rejected(InstallError::NotFound);
    // A deploy renders the stack outputs step by step.
    let in_progress = InstallError::DeployInProgress { run: ONE, kind: RunKind::Deploy };
    install(deploying()).when(set_outputs("eu-2")).then_rejected(in_progress);
    let stack = |history: Vec<InstallEvent>| {
        let mut install = Install::default();
        history.into_iter().for_each(|event| install.evolve(event));
        install.stack_outputs()
    };
    assert_eq!(stack(and(created(), [outputs_set("eu-2")])), outputs("eu-2"));
    assert_eq!(stack(and(ready(), [outputs_set("eu-2")])), outputs("eu-1"));
}

#[test]
fn the_keys_of_a_runner_are_recovered_once() {
    let successor = RunnerId(ulid::Ulid(3));
    let recovery = |runner, former| Recovery {
        runner,
        former,
        generation: 2,
        signature: "c2ln".into(),
        unproved_states: [("api".into(), state_version(7))].into(),
    };
    let recover = |runner, former| InstallCommand::Recover(recovery(runner, former));
    let recovered = || InstallEvent::Recovered(recovery(successor, RUNNER));
    given::<Install>(ready()).when(recover(successor, RUNNER)).then([recovered()]);
    let again = InstallError::AlreadyRecovered { former: RUNNER, runner: successor };
    let third = RunnerId(ulid::Ulid(4));
    given::<Install>(and(ready(), [recovered()])).when(recover(third, RUNNER)).then_rejected(again);
    given::<Install>(and(ready(), [recovered()]))
        .when(recover(third, successor))
        .then([InstallEvent::Recovered(recovery(third, successor))]);
    given::<Install>([]).when(recover(successor, RUNNER)).then_rejected(InstallError::NotFound);
}
