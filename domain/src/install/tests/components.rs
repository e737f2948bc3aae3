//! Enabled and disabled components of an install.
use super::*;

#[test]
fn a_component_is_enabled_or_disabled_once_and_not_during_a_deploy() {
    let set = |enabled| InstallCommand::SetComponentEnabled {
        name: "api".into(),
        enabled,
        by: ANN,
        reason: change_reason(),
    };
    let (name, by) = ("api".to_string(), ANN);
    let disabled = InstallEvent::ComponentDisabled { name, by, reason: change_reason() };
    let (name, by) = ("api".to_string(), ANN);
    let enabled = InstallEvent::ComponentEnabled { name, by, reason: change_reason() };
    install(created()).when(set(false)).then([disabled.clone()]);
    install(and(created(), [disabled.clone()])).when(set(false)).then_nothing();
    install(and(created(), [disabled])).when(set(true)).then([enabled.clone()]);
    // The event is stored even if it matches the config's default, because a later version may have
    // another default.
    install(created()).when(set(true)).then([enabled]);
    install(vec![]).when(set(false)).then_rejected(InstallError::NotFound);
    let in_progress = InstallError::DeployInProgress { run: ONE, kind: RunKind::Deploy };
    install(deploying()).when(set(false)).then_rejected(in_progress);
}

#[test]
fn a_deployed_component_is_excluded_only_after_a_user_disabled_it() {
    let (_, deployed) = deployed();
    let choices = |events: Vec<InstallEvent>| {
        let mut install = Install::default();
        events.into_iter().for_each(|event| install.evolve(event));
        install.component_choices()
    };
    assert_eq!(choices(created()), [].into());
    assert_eq!(choices(and(created(), [deployed.clone()])), [("api".into(), true)].into());
    let (name, by) = ("api".to_string(), ANN);
    let disabled = InstallEvent::ComponentDisabled { name, by, reason: change_reason() };
    let events = and(created(), [deployed, disabled]);
    assert_eq!(choices(events), [("api".into(), false)].into());
}
