//! Runner and stack outputs of an install.
use super::*;

#[test]
fn an_install_has_one_runner() {
    let report = |runner, replaces| {
        let outputs = outputs("eu-1");
        InstallCommand::ReportStackOutputs { runner, outputs, replaces }
    };
    let other = RunnerId(ulid::Ulid(3));
    let has_one = || InstallError::HasRunner { runner: RUNNER };
    install(created()).when(report(RUNNER, None)).then([ready().remove(1)]);
    install(ready()).when(report(RUNNER, None)).then_nothing();
    install(ready()).when(report(other, None)).then_rejected(has_one());
    install(vec![]).when(report(RUNNER, None)).then_rejected(InstallError::NotFound);
    // Another runner may replace only the revoked runner of the install.
    let second = InstallEvent::StackOutputsReported { runner: other, outputs: outputs("eu-1") };
    install(ready()).when(report(other, Some(RUNNER))).then([second.clone()]);
    install(ready()).when(report(other, Some(other))).then_rejected(has_one());
    install(and(ready(), [second])).when(report(other, Some(RUNNER))).then_nothing();
}

#[test]
fn stack_outputs_of_the_runner_take_precedence() {
    let give = |region: &str| InstallCommand::SetStackOutputs {
        outputs: outputs(region),
        by: ANN,
        reason: because(),
    };
    let given = |region: &str| InstallEvent::StackOutputsSet {
        outputs: outputs(region),
        by: ANN,
        reason: because(),
    };
    install(created()).when(give("eu-2")).then([given("eu-2")]);
    install(and(created(), [given("eu-2")])).when(give("eu-2")).then_nothing();
    install(vec![]).when(give("eu-2")).then_rejected(InstallError::NotFound);
    // A deploy renders the stack outputs step by step.
    let bringing = InstallError::DeployInProgress { run: ONE, kind: RunKind::Deploy };
    install(deploying()).when(give("eu-2")).then_rejected(bringing);
    let stack = |history: Vec<InstallEvent>| {
        let mut install = Install::default();
        history.into_iter().for_each(|event| install.evolve(event));
        install.stack_outputs()
    };
    assert_eq!(stack(and(created(), [given("eu-2")])), outputs("eu-2"));
    assert_eq!(stack(and(ready(), [given("eu-2")])), outputs("eu-1"));
}
