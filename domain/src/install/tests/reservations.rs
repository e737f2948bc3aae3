//! Reservation and release of resources.
use super::*;

#[test]
fn a_component_is_held_by_one_step() {
    let held = and(deploying(), [component_reserved("api", ONE, S1)]);
    let by = Holder { run: ONE, step: S1 };
    install(deploying()).when(reserve("api", ONE, S1)).then([component_reserved("api", ONE, S1)]);
    install(held.clone()).when(reserve("api", ONE, S1)).then_nothing();
    install(held.clone()).when(reserve("api", ONE, S2)).then_rejected(InstallError::Held { by });
    install(held.clone()).when(reserve("web", ONE, S2)).then([component_reserved("web", ONE, S2)]);
    install(held).when(reserve("api", TWO, S2)).then_rejected(InstallError::NotAdmitted);
}

#[test]
fn the_sandbox_excludes_every_component() {
    let sandbox = InstallCommand::Reserve { resource: Resource::Sandbox, run: ONE, step: S2 };
    let reserved = InstallEvent::SandboxReserved { run: ONE, step: S2 };
    let held = and(deploying(), [component_reserved("api", ONE, S1)]);
    let by = |step| InstallError::Held { by: Holder { run: ONE, step } };
    install(deploying()).when(sandbox.clone()).then([reserved.clone()]);
    install(held).when(sandbox.clone()).then_rejected(by(S1));
    let sandbox_held = and(deploying(), [reserved]);
    install(sandbox_held.clone()).when(sandbox).then_nothing();
    install(sandbox_held).when(reserve("api", ONE, S1)).then_rejected(by(S2));
}

#[test]
fn a_drift_check_of_the_sandbox_waits_only_for_the_sandbox() {
    let check = InstallCommand::Reserve { resource: Resource::Sandbox, run: TWO, step: S2 };
    let reserved = InstallEvent::SandboxReserved { run: TWO, step: S2 };
    let both = and(deploying(), [admitted(TWO, RunKind::Drift, &["api"])]);
    let held = and(both.clone(), [component_reserved("api", ONE, S1)]);
    install(held.clone()).when(check.clone()).then([reserved.clone()]);
    // The check of the component waits, and a change of a component waits for the check.
    let by = |run, step| InstallError::Held { by: Holder { run, step } };
    install(held.clone()).when(reserve("api", TWO, S2)).then_rejected(by(ONE, S1));
    let checking = and(held, [reserved]);
    install(checking).when(reserve("web", ONE, S2)).then_rejected(by(TWO, S2));
    let sandbox = and(both, [InstallEvent::SandboxReserved { run: ONE, step: S1 }]);
    install(sandbox).when(check).then_rejected(by(ONE, S1));
}

#[test]
fn a_resource_is_released_once() {
    let release = InstallCommand::Release { run: ONE, step: S1 };
    let held = and(deploying(), [component_reserved("api", ONE, S1)]);
    let (name, run, step) = ("api".to_string(), ONE, S1);
    let released = InstallEvent::ComponentReleased { name, run, step };
    install(held.clone()).when(release.clone()).then([released.clone()]);
    install(and(held, [released])).when(release).then_nothing();
    let sandbox = and(deploying(), [InstallEvent::SandboxReserved { run: ONE, step: S1 }]);
    let release = InstallCommand::Release { run: ONE, step: S1 };
    let released = InstallEvent::SandboxReleased { run: ONE, step: S1 };
    install(sandbox).when(release).then([released]);
}

#[test]
fn only_the_holder_records_a_deploy() {
    let (result, event) = deployed();
    let record = |step| InstallCommand::RecordResult { run: ONE, step, result: result.clone() };
    let held = and(deploying(), [component_reserved("api", ONE, S1)]);
    install(held.clone()).when(record(S1)).then([event]);
    install(held).when(record(S2)).then_rejected(InstallError::ResourceNotHeld);
    install(deploying()).when(record(S1)).then_rejected(InstallError::ResourceNotHeld);
}
