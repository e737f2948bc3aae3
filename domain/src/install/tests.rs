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

mod begun;
mod examples;
mod holding;
mod readings;
mod runs;
mod state_versions;

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
    StateVersion { lineage: "8907c070-aa91-8603-a355-2d2006a6c7aa".into(), serial }
}

fn because() -> Option<String> {
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
    and(created(), [InstallEvent::StackReported { runner: RUNNER, outputs }])
}

fn admitted(run: RunId, kind: RunKind, components: &[&str]) -> InstallEvent {
    InstallEvent::RunAdmitted { run, kind, names: names(components) }
}

fn admit(run: RunId, kind: RunKind, components: &[&str]) -> InstallCommand {
    InstallCommand::AdmitRun { run, kind, names: names(components) }
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
    let (name, needs) = ("api".to_string(), names(&["net"]));
    let result = StepResult::ComponentDeployed {
        name: name.clone(),
        component: COMPONENT,
        build: BUILD,
        config_version: 1,
        fingerprint: digest(1),
        needs: needs.clone(),
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
        needs,
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
    install(created()).when(create()).nothing();
    let changed = InstallEvent::InputsChanged {
        set: text(&[("size", "4")]),
        unset: names(&[]),
        by: ANN,
        reason: None,
    };
    install(and(created(), [changed])).when(create()).refused(InstallError::AlreadyCreated);
    let release = InstallCommand::Release { run: ONE, step: S1 };
    install(vec![]).when(release).refused(InstallError::NotFound);
}

#[test]
fn only_inputs_that_differ_are_a_change() {
    let change = |set: &[(&str, &str)], unset: &[&str]| InstallCommand::ChangeInputs {
        set: text(set),
        unset: names(unset),
        by: ANN,
        reason: because(),
    };
    install(created()).when(change(&[("size", "3")], &["zone"])).nothing();
    let set = text(&[("zone", "b")]);
    let event =
        InstallEvent::InputsChanged { set, unset: names(&["size"]), by: ANN, reason: because() };
    install(created()).when(change(&[("zone", "b")], &["size"])).then([event]);
    install(vec![]).when(change(&[], &[])).refused(InstallError::NotFound);
}

#[test]
fn an_install_follows_one_config_version() {
    let pin =
        |config_version| InstallCommand::PinConfig { config_version, by: ANN, reason: because() };
    install(created()).when(pin(1)).nothing();
    let pinned = InstallEvent::ConfigPinned { config_version: 2, by: ANN, reason: because() };
    install(created()).when(pin(2)).then([pinned]);
    install(vec![]).when(pin(2)).refused(InstallError::NotFound);
}

#[test]
fn an_install_approves_by_itself_or_not() {
    let set =
        |auto_approve| InstallCommand::SetAutoApprove { auto_approve, by: ANN, reason: because() };
    install(created()).when(set(false)).nothing();
    let changed = InstallEvent::ApprovalChanged { auto_approve: true, by: ANN, reason: because() };
    install(created()).when(set(true)).then([changed]);
    install(vec![]).when(set(true)).refused(InstallError::NotFound);
}

#[test]
fn a_component_is_enabled_or_disabled_once_and_not_during_a_deploy() {
    let set = |enabled| InstallCommand::SetComponentEnabled {
        name: "api".into(),
        enabled,
        by: ANN,
        reason: because(),
    };
    let (name, by) = ("api".to_string(), ANN);
    let disabled = InstallEvent::ComponentDisabled { name, by, reason: because() };
    let (name, by) = ("api".to_string(), ANN);
    let enabled = InstallEvent::ComponentEnabled { name, by, reason: because() };
    install(created()).when(set(false)).then([disabled.clone()]);
    install(and(created(), [disabled.clone()])).when(set(false)).nothing();
    install(and(created(), [disabled])).when(set(true)).then([enabled.clone()]);
    // The choice is recorded although it is the default of most configs: a later version may have another.
    install(created()).when(set(true)).then([enabled]);
    install(vec![]).when(set(false)).refused(InstallError::NotFound);
    let bringing = InstallError::Bringing { run: ONE, kind: RunKind::Deploy };
    install(deploying()).when(set(false)).refused(bringing);
}

#[test]
fn a_deployed_component_is_left_out_only_after_a_user_disabled_it() {
    let (_, deployed) = deployed();
    let choices = |events: Vec<InstallEvent>| {
        let mut install = Install::default();
        events.into_iter().for_each(|event| install.evolve(event));
        install.component_choices()
    };
    assert_eq!(choices(created()), [].into());
    assert_eq!(choices(and(created(), [deployed.clone()])), [("api".into(), true)].into());
    let (name, by) = ("api".to_string(), ANN);
    let disabled = InstallEvent::ComponentDisabled { name, by, reason: because() };
    let events = and(created(), [deployed, disabled]);
    assert_eq!(choices(events), [("api".into(), false)].into());
}

#[test]
fn an_install_has_one_runner() {
    let report = |runner, replaces| {
        let outputs = outputs("eu-1");
        InstallCommand::ReportStack { runner, outputs, replaces }
    };
    let other = RunnerId(ulid::Ulid(3));
    let has_one = || InstallError::HasARunner { runner: RUNNER };
    install(created()).when(report(RUNNER, None)).then([ready().remove(1)]);
    install(ready()).when(report(RUNNER, None)).nothing();
    install(ready()).when(report(other, None)).refused(has_one());
    install(vec![]).when(report(RUNNER, None)).refused(InstallError::NotFound);
    // One that is never heard again makes room for another; only the one that it has.
    let second = InstallEvent::StackReported { runner: other, outputs: outputs("eu-1") };
    install(ready()).when(report(other, Some(RUNNER))).then([second.clone()]);
    install(ready()).when(report(other, Some(other))).refused(has_one());
    install(and(ready(), [second])).when(report(other, Some(RUNNER))).nothing();
}

#[test]
fn it_is_over_when_it_is_taken_down_and_nothing_goes_on() {
    let is_over = |history: Vec<InstallEvent>| crate::testing::replay::<Install>(history).is_over();
    let down = and(ready(), [admitted(ONE, RunKind::Deprovision, &[])]);
    let gone = || InstallEvent::Deprovisioned { run: Some(ONE) };
    let closed = InstallEvent::RunClosed { run: ONE, outcome: Outcome::Succeeded };
    assert!(!is_over(ready()) && !is_over(down.clone()));
    assert!(!is_over(and(down.clone(), [gone()])), "its run goes on");
    assert!(is_over(and(down, [closed, gone()])));
}

#[test]
fn what_the_vendor_says_of_a_stack_gives_way_to_what_the_runner_brings() {
    let give = |region: &str| InstallCommand::GiveStack {
        outputs: outputs(region),
        by: ANN,
        reason: because(),
    };
    let given = |region: &str| InstallEvent::StackGiven {
        outputs: outputs(region),
        by: ANN,
        reason: because(),
    };
    install(created()).when(give("eu-2")).then([given("eu-2")]);
    install(and(created(), [given("eu-2")])).when(give("eu-2")).nothing();
    install(vec![]).when(give("eu-2")).refused(InstallError::NotFound);
    // A run that brings things renders what the install is given step by step.
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

#[test]
fn the_whole_machine_fits_in_a_table() {
    let held = and(deploying(), [component_reserved("api", ONE, S1)]);
    let sandbox_held = and(deploying(), [InstallEvent::SandboxReserved { run: ONE, step: S1 }]);
    let down = and(ready(), [admitted(ONE, RunKind::Deprovision, &[])]);
    let record = InstallCommand::Record { run: ONE, step: S1, result: deployed().0 };
    let reserve_sandbox =
        InstallCommand::Reserve { resource: Resource::Sandbox, run: ONE, step: S1 };
    let set = text(&[("size", "4")]);
    crate::testing::transitions::<Install>(
        vec![
            ("unborn", vec![]),
            ("created", created()),
            ("ready", ready()),
            ("deploying", deploying()),
            ("component held", held.clone()),
            ("sandbox held", sandbox_held),
            ("changing", and(held.clone(), [begun::changing().1])),
            ("deployed", and(held, [deployed().1])),
            ("deprovisioning", down),
        ],
        vec![
            ("create", create()),
            (
                "change inputs",
                InstallCommand::ChangeInputs { set, unset: names(&[]), by: ANN, reason: None },
            ),
            ("pin config", InstallCommand::PinConfig { config_version: 2, by: ANN, reason: None }),
            (
                "auto-approve",
                InstallCommand::SetAutoApprove { auto_approve: true, by: ANN, reason: None },
            ),
            (
                "report stack",
                InstallCommand::ReportStack {
                    runner: RUNNER,
                    outputs: outputs("eu-1"),
                    replaces: None,
                },
            ),
            (
                "give stack",
                InstallCommand::GiveStack { outputs: outputs("eu-2"), by: ANN, reason: None },
            ),
            (
                "disable component",
                InstallCommand::SetComponentEnabled {
                    name: "api".into(),
                    enabled: false,
                    by: ANN,
                    reason: None,
                },
            ),
            ("admit deploy of api", admit(TWO, RunKind::Deploy, &["api"])),
            ("admit deploy of web", admit(TWO, RunKind::Deploy, &["web"])),
            ("admit teardown", admit(TWO, RunKind::Teardown, &[])),
            ("admit action", admit(TWO, RunKind::Action, &[])),
            ("reserve api", reserve("api", ONE, S1)),
            ("reserve api: other step", reserve("api", ONE, S2)),
            ("reserve sandbox", reserve_sandbox),
            ("begin", InstallCommand::Begin { run: ONE, step: S1, changing: begun::changing().0 }),
            (
                "unchanged",
                InstallCommand::Unchanged {
                    run: ONE,
                    step: S1,
                    resource: Resource::Component("api".into()),
                },
            ),
            ("record deployed", record),
            (
                "record state",
                InstallCommand::RecordState {
                    name: "api".into(),
                    run: ONE,
                    step: S1,
                    state: state_version(7),
                },
            ),
            (
                "accept state",
                InstallCommand::AcceptState {
                    name: "api".into(),
                    state: state_version(3),
                    by: ANN,
                    reason: "restored".into(),
                },
            ),
            ("deprovision", InstallCommand::Deprovision),
            ("release", InstallCommand::Release { run: ONE, step: S1 }),
            ("close run", InstallCommand::CloseRun { run: ONE, outcome: Outcome::Succeeded }),
        ],
    );
}

mod first_provision {
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
        install(and(created(), [set()])).when(first()).nothing();
        let begun = and(ready(), [admitted(ONE, RunKind::Provision, &[])]);
        install(begun).when(first()).refused(InstallError::NotFirstProvision);
        install(vec![]).when(first()).refused(InstallError::NotFound);
    }

    #[test]
    fn no_run_but_the_first_provision_is_approved_in_advance() {
        let begun = and(ready(), [set(), admitted(ONE, RunKind::Provision, &[])]);
        assert!(state(begun.clone()).approves_first(ONE));
        assert!(!state(begun.clone()).approves_first(TWO));
        // The run has ended, and a second one provisions again.
        let closed = InstallEvent::RunClosed { run: ONE, outcome: Outcome::Failed };
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
        let changed = InstallEvent::ApprovalChanged { auto_approve: false, by: ANN, reason: None };
        install(and(created(), [set()])).when(off).then([changed.clone()]);
        let begun = and(ready(), [set(), changed, admitted(ONE, RunKind::Provision, &[])]);
        assert!(!state(begun).approves_first(ONE));
    }
}
