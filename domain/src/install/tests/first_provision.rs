//! Approval of the first provision in advance.
use super::*;

fn first() -> InstallCommand {
    InstallCommand::AutoApproveFirst { by: ANN }
}

fn set() -> InstallEvent {
    InstallEvent::FirstProvisionAutoApproved { by: ANN }
}

fn state(events: Vec<InstallEvent>) -> Install {
    let mut state = Install::default();
    events.into_iter().for_each(|event| state.evolve(event));
    state
}

#[test]
fn only_an_install_without_a_run_approves_its_first_provision_in_advance() {
    install(created()).when(first()).then([set()]);
    install(and(created(), [set()])).when(first()).then_nothing();
    let begun = and(ready(), [admitted(ONE, RunKind::Provision, &[])]);
    install(begun).when(first()).then_rejected(InstallError::NotFirstProvision);
    install(vec![]).when(first()).then_rejected(InstallError::NotFound);
}

#[test]
fn no_run_but_the_first_provision_is_approved_in_advance() {
    let begun = and(ready(), [set(), admitted(ONE, RunKind::Provision, &[])]);
    assert!(state(begun.clone()).approves_first(ONE));
    assert!(!state(begun.clone()).approves_first(TWO));
    // The run has ended, and a second one provisions again.
    let closed = InstallEvent::RunFinished { run: ONE, outcome: Outcome::Failed };
    let again = and(begun, [closed, admitted(TWO, RunKind::Provision, &[])]);
    assert!(![ONE, TWO].into_iter().any(|run| state(again.clone()).approves_first(run)));
    // The first run is of another kind.
    let deployed = and(ready(), [set(), admitted(ONE, RunKind::Deploy, &[])]);
    assert!(!state(deployed).approves_first(ONE));
    let never = and(ready(), [admitted(ONE, RunKind::Provision, &[])]);
    assert!(!state(never).approves_first(ONE));
}

#[test]
fn switching_auto_approve_off_takes_the_advance_approval_back() {
    let off = InstallCommand::SetAutoApprove { auto_approve: false, by: ANN, reason: None };
    let changed = InstallEvent::AutoApproveChanged { auto_approve: false, by: ANN, reason: None };
    install(and(created(), [set()])).when(off).then([changed.clone()]);
    let begun = and(ready(), [set(), changed, admitted(ONE, RunKind::Provision, &[])]);
    assert!(!state(begun).approves_first(ONE));
}
