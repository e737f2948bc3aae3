//! Newest known state version of a component, and users' decisions about the version.
use super::*;

fn record(serial: u64) -> InstallCommand {
    InstallCommand::RecordState {
        name: "api".into(),
        run: ONE,
        step: S1,
        state: state_version(serial),
    }
}

fn accept(serial: u64) -> InstallCommand {
    let (name, reason) = ("api".into(), "restored".into());
    InstallCommand::AcceptState { name, state: state_version(serial), by: ANN, reason }
}

fn after(commands: impl IntoIterator<Item = InstallCommand>) -> Install {
    let mut install = Install::default();
    created().into_iter().for_each(|event| install.evolve(event));
    for command in commands {
        let events = install.decide(command, Timestamp::UNIX_EPOCH).unwrap();
        events.into_iter().for_each(|event| install.evolve(event));
    }
    install
}

#[test]
fn only_a_decision_moves_the_newest_state_back() {
    let known = |commands: Vec<InstallCommand>| after(commands).states["api"].clone();
    assert_eq!(known(vec![record(7), record(3)]).newest, Some(state_version(7)));
    let accepted = known(vec![record(7), accept(3)]);
    assert_eq!((accepted.newest, accepted.decisions), (Some(state_version(3)), 1));
    let later = known(vec![record(7), accept(3), record(4)]);
    assert_eq!((later.newest, later.accepted), (Some(state_version(4)), Some(state_version(3))));
    // Repeating a decision changes nothing, unless the state has changed since.
    assert_eq!(known(vec![record(7), accept(3), accept(3)]).decisions, 1);
    assert_eq!(known(vec![record(7), accept(3), record(4), accept(3)]).decisions, 2);
}

#[test]
fn another_lineage_that_was_applied_is_the_newest() {
    let mut other = state_version(1);
    other.lineage = "other".into();
    let (name, run, step) = ("api".to_owned(), ONE, S1);
    let record_other = InstallCommand::RecordState { name, run, step, state: other.clone() };
    assert_eq!(after([record(7), record_other]).states["api"].newest, Some(other));
}

#[test]
fn a_decision_names_a_component_that_was_deployed_and_a_lineage_that_exists() {
    let rejection = after([]).decide(accept(3), Timestamp::UNIX_EPOCH);
    assert_eq!(rejection, Err(InstallError::NoSuchComponent { name: "api".into() }));
    let mut spaced = state_version(3);
    spaced.lineage = "a b".into();
    for state in [spaced, state_version(1 << 63)] {
        let (name, reason) = ("api".into(), "restored".into());
        let invalid = InstallCommand::AcceptState { name, state, by: ANN, reason };
        let rejection = after([record(7)]).decide(invalid, Timestamp::UNIX_EPOCH);
        assert!(matches!(rejection, Err(InstallError::InvalidLineage { .. })), "{rejection:?}");
    }
}

fn awaited(serial: u64) -> InstallEvent {
    let (name, run, step) = ("api".to_owned(), ONE, S1);
    InstallEvent::StateAwaited { name, run, step, state: state_version(serial) }
}

#[test]
fn a_component_whose_state_only_the_host_has_cannot_be_reserved() {
    let history = and(deploying(), [awaited(7)]);
    let (name, state) = ("api".to_owned(), state_version(7));
    let pending = InstallError::StateAwaited { name, state };
    install(history.clone()).when(reserve("api", ONE, S2)).then_rejected(pending.clone());
    // The step that held it when its job ended cannot begin again either.
    let held = and(deploying(), [component_reserved("api", ONE, S1), awaited(7)]);
    install(held).when(reserve("api", ONE, S1)).then_rejected(pending);
    let reserved = vec![component_reserved("net", ONE, S2)];
    install(history.clone()).when(reserve("net", ONE, S2)).then(reserved);
    for end in [
        InstallEvent::StateArrived { name: "api".into(), state: state_version(9) },
        InstallEvent::StateAccepted {
            name: "api".into(),
            state: state_version(3),
            by: ANN,
            reason: "the host is lost".into(),
        },
    ] {
        let reserved = vec![component_reserved("api", ONE, S2)];
        install(and(history.clone(), [end])).when(reserve("api", ONE, S2)).then(reserved);
    }
}

#[test]
fn an_awaited_state_a_later_one_or_a_decision_ends_the_wait() {
    let history = and(deploying(), [awaited(7)]);
    let arrival = |state: StateVersion, is_decided| InstallCommand::RecordStateArrival {
        name: "api".into(),
        state,
        is_decided,
    };
    let arrived = |state| vec![InstallEvent::StateArrived { name: "api".into(), state }];
    let other = StateVersion { lineage: "other".into(), ..state_version(9) };
    for (state, is_decided) in
        [(state_version(7), false), (state_version(8), false), (other.clone(), true)]
    {
        let command = arrival(state.clone(), is_decided);
        install(history.clone()).when(command).then(arrived(state));
    }
    // Two hosts can write the same serial with other content.
    let diverged = StateVersion { digest: Some("hmac-sha256:1:ff".into()), ..state_version(7) };
    for state in [state_version(6), other, diverged] {
        install(history.clone()).when(arrival(state, false)).then_nothing();
    }
    install(deploying()).when(arrival(state_version(7), true)).then_nothing();
}

#[test]
fn only_a_state_that_the_server_can_have_is_awaited() {
    let wait = |state| InstallCommand::AwaitState { name: "api".into(), run: ONE, step: S1, state };
    install(deploying()).when(wait(state_version(7))).then(vec![awaited(7)]);
    let history = and(deploying(), [awaited(7)]);
    install(history).when(wait(state_version(7))).then_nothing();
    let plain = StateVersion { digest: None, ..state_version(7) };
    install(deploying()).when(wait(plain)).then_nothing();
}

#[test]
fn only_components_of_the_install_may_have_a_state() {
    let install = after([record(7)]);
    assert!(install.may_have_state("api") && install.may_have_state("sandbox"));
    assert!(!install.may_have_state("other") && !install.may_have_state(""));
}

#[test]
fn names_of_components_are_those_that_a_config_can_have() {
    for name in ["sandbox", "_a", "Api_2", &"x".repeat(64)] {
        assert!(is_component_name(name), "{name}");
    }
    for name in ["", "2a", "a-b", "a/b", "..", "a\0", "ä", &"x".repeat(65)] {
        assert!(!is_component_name(name), "{name:?}");
    }
}

#[test]
fn a_destroyed_component_has_no_newest_state_and_keeps_the_number_of_its_decisions() {
    let mut install = after([record(7), accept(3)]);
    let (name, component) = ("api".into(), COMPONENT);
    install.evolve(InstallEvent::ComponentDestroyed { name, component, run: ONE, step: S1 });
    let known = &install.states["api"];
    assert_eq!((known.newest.clone(), known.decisions), (None, 1));
}
