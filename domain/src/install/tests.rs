use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{
    actor::Actor,
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, PrincipalId, RunnerId},
    run::Outcome,
    state_version::StateVersion,
    testing::{Given, given},
};

mod applies;
mod components;
mod examples;
mod first_provision;
mod outdated_outputs;
mod reservations;
mod runs;
mod stack;
mod state_versions;
mod table;

const ANN: Actor = Actor::Principal(PrincipalId(ulid::Ulid(9)));
const APP: AppId = AppId(ulid::Ulid(1));
const RUNNER: RunnerId = RunnerId(ulid::Ulid(2));
const ONE: RunId = RunId(ulid::Ulid(11));
const TWO: RunId = RunId(ulid::Ulid(12));
const S1: StepId = StepId(ulid::Ulid(21));
const S2: StepId = StepId(ulid::Ulid(22));
const COMPONENT: ComponentId = ComponentId(ulid::Ulid(31));
const BUILD: BuildId = BuildId(ulid::Ulid(41));

fn digest(n: u8) -> Digest {
    format!("sha256:{n:064x}").parse().unwrap()
}

fn text(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn outputs(value: &str) -> Outputs {
    [("region".to_string(), serde_json::json!(value))].into()
}

fn state_version(serial: u64) -> StateVersion {
    let digest = Some(format!("hmac-sha256:1:{serial:064x}"));
    StateVersion { lineage: "8907c070-aa91-8603-a355-2d2006a6c7aa".into(), serial, digest }
}

fn change_reason() -> Option<String> {
    Some("CHG-1204".into())
}

fn create() -> InstallCommand {
    InstallCommand::Create {
        app: APP,
        name: "acme".into(),
        config_version: 1,
        inputs: text(&[("size", "3")]),
        auto_approve: false,
    }
}

fn created() -> Vec<InstallEvent> {
    vec![InstallEvent::Created {
        app: APP,
        name: "acme".into(),
        config_version: 1,
        inputs: text(&[("size", "3")]),
        auto_approve: false,
    }]
}

fn and<const N: usize>(history: Vec<InstallEvent>, then: [InstallEvent; N]) -> Vec<InstallEvent> {
    [history, then.to_vec()].concat()
}

fn ready() -> Vec<InstallEvent> {
    let outputs = outputs("eu-1");
    and(created(), [InstallEvent::StackOutputsReported { runner: RUNNER, outputs }])
}

fn admitted(run: RunId, kind: RunKind, components: &[&str]) -> InstallEvent {
    InstallEvent::RunAdmitted { run, kind, components: names(components) }
}

fn admit(run: RunId, kind: RunKind, components: &[&str]) -> InstallCommand {
    InstallCommand::AdmitRun { run, kind, components: names(components) }
}

fn deploying() -> Vec<InstallEvent> {
    and(ready(), [admitted(ONE, RunKind::Deploy, &["api"])])
}

fn component_reserved(name: &str, run: RunId, step: StepId) -> InstallEvent {
    InstallEvent::ComponentReserved { name: name.into(), run, step }
}

fn reserve(component: &str, run: RunId, step: StepId) -> InstallCommand {
    InstallCommand::Reserve { resource: Resource::Component(component.into()), run, step }
}

fn deployed() -> (StepResult, InstallEvent) {
    let (name, depends_on) = ("api".to_string(), names(&["net"]));
    let result = StepResult::ComponentDeployed {
        name: name.clone(),
        component: COMPONENT,
        build: BUILD,
        config_version: 1,
        fingerprint: digest(1),
        depends_on: depends_on.clone(),
        outputs: outputs("x"),
    };
    let event = InstallEvent::ComponentDeployed {
        name,
        component: COMPONENT,
        run: ONE,
        step: S1,
        build: BUILD,
        config_version: 1,
        fingerprint: digest(1),
        depends_on,
        outputs: outputs("x"),
    };
    (result, event)
}

fn install(history: Vec<InstallEvent>) -> Given<Install> {
    given(history)
}

#[test]
fn an_install_is_created_once() {
    install(vec![]).when(create()).then(created());
    install(created()).when(create()).then_nothing();
    let changed = InstallEvent::InputsChanged {
        set: text(&[("size", "4")]),
        unset: names(&[]),
        by: ANN,
        reason: None,
    };
    install(and(created(), [changed])).when(create()).then_rejected(InstallError::AlreadyCreated);
    let release = InstallCommand::Release { run: ONE, step: S1 };
    install(vec![]).when(release).then_rejected(InstallError::NotFound);
}

#[test]
fn only_inputs_that_differ_are_a_change() {
    let change = |set: &[(&str, &str)], unset: &[&str]| InstallCommand::ChangeInputs {
        set: text(set),
        unset: names(unset),
        by: ANN,
        reason: change_reason(),
    };
    install(created()).when(change(&[("size", "3")], &["zone"])).then_nothing();
    let set = text(&[("zone", "b")]);
    let event = InstallEvent::InputsChanged {
        set,
        unset: names(&["size"]),
        by: ANN,
        reason: change_reason(),
    };
    install(created()).when(change(&[("zone", "b")], &["size"])).then([event]);
    install(vec![]).when(change(&[], &[])).then_rejected(InstallError::NotFound);
}

#[test]
fn an_install_follows_one_config_version() {
    let pin = |config_version| InstallCommand::PinConfig {
        config_version,
        by: ANN,
        reason: change_reason(),
    };
    install(created()).when(pin(1)).then_nothing();
    let pinned = InstallEvent::ConfigPinned { config_version: 2, by: ANN, reason: change_reason() };
    install(created()).when(pin(2)).then([pinned]);
    install(vec![]).when(pin(2)).then_rejected(InstallError::NotFound);
}

#[test]
fn auto_approve_is_turned_on_and_off() {
    let set = |auto_approve| InstallCommand::SetAutoApprove {
        auto_approve,
        by: ANN,
        reason: change_reason(),
    };
    install(created()).when(set(false)).then_nothing();
    let changed =
        InstallEvent::AutoApproveChanged { auto_approve: true, by: ANN, reason: change_reason() };
    install(created()).when(set(true)).then([changed]);
    install(vec![]).when(set(true)).then_rejected(InstallError::NotFound);
}

#[test]
fn an_install_is_over_when_deprovisioned_without_a_run_in_progress() {
    let is_over = |history: Vec<InstallEvent>| crate::testing::replay::<Install>(history).is_over();
    let deprovisioning = and(ready(), [admitted(ONE, RunKind::Deprovision, &[])]);
    let deprovisioned = || InstallEvent::Deprovisioned { run: Some(ONE) };
    let finished = InstallEvent::RunFinished { run: ONE, outcome: Outcome::Succeeded };
    assert!(!is_over(ready()) && !is_over(deprovisioning.clone()));
    assert!(!is_over(and(deprovisioning.clone(), [deprovisioned()])), "its run is in progress");
    assert!(is_over(and(deprovisioning, [finished, deprovisioned()])));
}
