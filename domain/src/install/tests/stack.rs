//! Runner and stack outputs of an install.
use super::*;

#[test]
fn an_install_has_one_runner() {
    let report = |runner, replaces| {
        let outputs = outputs("eu-1");
        InstallCommand::ReportStackOutputs { runner, outputs, replaces }
    };
    let other = RunnerId(ulid::Ulid(3));
    let has_one = || InstallError::HasARunner { runner: RUNNER };
    install(created()).when(report(RUNNER, None)).then([ready().remove(1)]);
    install(ready()).when(report(RUNNER, None)).nothing();
    install(ready()).when(report(other, None)).refused(has_one());
    install(vec![]).when(report(RUNNER, None)).refused(InstallError::NotFound);
    // Another runner may replace a revoked one, but only the one that the install has.
    let second = InstallEvent::StackOutputsReported { runner: other, outputs: outputs("eu-1") };
    install(ready()).when(report(other, Some(RUNNER))).then([second.clone()]);
    install(ready()).when(report(other, Some(other))).refused(has_one());
    install(and(ready(), [second])).when(report(other, Some(RUNNER))).nothing();
}

#[test]
fn what_the_vendor_says_of_a_stack_gives_way_to_what_the_runner_brings() {
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
    install(and(created(), [given("eu-2")])).when(give("eu-2")).nothing();
    install(vec![]).when(give("eu-2")).refused(InstallError::NotFound);
    // A deploy renders the stack outputs step by step.
    let bringing = InstallError::Bringing { run: ONE, kind: RunKind::Deploy };
    install(deploying()).when(give("eu-2")).refused(bringing);
    let stack = |history: Vec<InstallEvent>| {
        let mut install = Install::default();
        history.into_iter().for_each(|fact| install.evolve(fact));
        install.stack_outputs()
    };
    assert_eq!(stack(and(created(), [given("eu-2")])), outputs("eu-2"));
    assert_eq!(stack(and(ready(), [given("eu-2")])), outputs("eu-1"));
}
