//! Advance approval of the first provision.
use super::*;

fn approve_first() -> InstallCommand {
    InstallCommand::AutoApproveFirst { by: ANN }
}

fn first_approved() -> InstallEvent {
    InstallEvent::FirstProvisionAutoApproved { by: ANN }
}

fn state(events: Vec<InstallEvent>) -> Install {
    let mut state = Install::default();
    events.into_iter().for_each(|event| state.evolve(event));
    state
}

#[test]
fn only_an_install_without_a_run_approves_its_first_provision_in_advance() {
    install(created()).when(approve_first()).then([first_approved()]);
    install(and(created(), [first_approved()])).when(approve_first()).then_nothing();
    let provisioning = and(ready(), [admitted(ONE, RunKind::Provision, &[])]);
    install(provisioning).when(approve_first()).then_rejected(InstallError::NotFirstProvision);
    install(vec![]).when(approve_first()).then_rejected(InstallError::NotFound);
}

#[test]
fn no_run_but_the_first_provision_is_approved_in_advance() {
    let provisioning = and(ready(), [first_approved(), admitted(ONE, RunKind::Provision, &[])]);
    assert!(state(provisioning.clone()).approves_first(ONE));
    assert!(!state(provisioning.clone()).approves_first(TWO));
    // The first run has ended, and a second run provisions again.
    let finished = InstallEvent::RunFinished { run: ONE, outcome: Outcome::Failed };
    let second_provision = and(provisioning, [finished, admitted(TWO, RunKind::Provision, &[])]);
    assert!(![ONE, TWO].into_iter().any(|run| state(second_provision.clone()).approves_first(run)));
    // The first run is of another kind.
    let deployed = and(ready(), [first_approved(), admitted(ONE, RunKind::Deploy, &[])]);
    assert!(!state(deployed).approves_first(ONE));
    let without_approval = and(ready(), [admitted(ONE, RunKind::Provision, &[])]);
    assert!(!state(without_approval).approves_first(ONE));
}

#[test]
fn turning_auto_approve_off_revokes_the_advance_approval() {
    let off = InstallCommand::SetAutoApprove { auto_approve: false, by: ANN, reason: None };
    let changed = InstallEvent::AutoApproveChanged { auto_approve: false, by: ANN, reason: None };
    install(and(created(), [first_approved()])).when(off).then([changed.clone()]);
    let provisioning =
        and(ready(), [first_approved(), changed, admitted(ONE, RunKind::Provision, &[])]);
    assert!(!state(provisioning).approves_first(ONE));
}
