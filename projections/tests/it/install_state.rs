//! Tests the state of an install, a function of its components, its open runs and its last run.
use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use domain::{
    actor::Actor,
    decider::{Decider, Timestamp},
    ids::*,
    install::{Install, InstallCommand, Outputs, Resource, ResourceChange, StepResult},
    run::{Outcome, RunKind},
};
use projections::{
    DomainEvent, Projection, RecordedEvent,
    views::installs::{self, Installs, State},
};
use ulid::Ulid;

const INSTALL: InstallId = InstallId(Ulid(1));

/// An install of an app with a sandbox and the components `web` and `api`.
struct Scenario {
    install: Install,
    row: Option<installs::Row>,
    events: u64,
    commits: i64,
    runs: u128,
}

impl Scenario {
    /// Returns the install before a runner enrolled.
    fn begin() -> Scenario {
        let install = Install::default();
        let mut scenario = Scenario { install, row: None, events: 0, commits: 0, runs: 0 };
        scenario.commit([InstallCommand::Create {
            app: AppId(Ulid(2)),
            name: "acme".into(),
            config_version: 1,
            inputs: BTreeMap::new(),
            auto_approve: false,
        }]);
        scenario
    }

    /// Returns the install after its runner enrolled.
    fn enrolled() -> Scenario {
        let mut scenario = Scenario::begin();
        let (runner, outputs) = (RunnerId(Ulid(3)), Outputs::new());
        scenario.commit([InstallCommand::ReportStackOutputs { runner, outputs, replaces: None }]);
        scenario
    }

    /// Returns the install after a provision that succeeded.
    fn provisioned() -> Scenario {
        let mut scenario = Scenario::enrolled();
        let run = scenario.admit(RunKind::Provision);
        scenario.provision_sandbox(run);
        scenario.deploy(run, "web");
        scenario.deploy(run, "api");
        scenario.close(run, Outcome::Succeeded);
        scenario
    }

    fn commit(&mut self, commands: impl IntoIterator<Item = InstallCommand>) {
        self.commits += 1;
        let at = Timestamp::UNIX_EPOCH + TimeDelta::seconds(self.commits);
        for command in commands {
            for event in self.install.decide(command, at).unwrap() {
                self.install.evolve(event.clone());
                self.events += 1;
                let domain_event = DomainEvent::Install(INSTALL, event);
                let (position, actor) = (self.events, Actor::System);
                let event = RecordedEvent { position, sequence: position, at, actor, domain_event };
                self.row = Installs::apply(&INSTALL.to_string(), self.row.take(), &event);
            }
        }
    }

    fn admission(&mut self, kind: RunKind) -> (RunId, InstallCommand) {
        self.runs += 1;
        let run = RunId(Ulid(self.runs));
        (run, InstallCommand::AdmitRun { run, kind, components: BTreeSet::new() })
    }

    fn admit(&mut self, kind: RunKind) -> RunId {
        let (run, admit) = self.admission(kind);
        self.commit([admit]);
        run
    }

    /// Changes the config version. With a `kind`, admits a run of this kind in the same commit.
    fn pin(&mut self, config_version: u32, kind: Option<RunKind>) -> Option<RunId> {
        let pin = InstallCommand::PinConfig { config_version, by: Actor::System, reason: None };
        let admission = kind.map(|kind| self.admission(kind));
        let run = admission.as_ref().map(|(run, _)| *run);
        self.commit([pin].into_iter().chain(admission.map(|(_, admit)| admit)));
        run
    }

    fn reserve(&mut self, run: RunId, resource: Resource) -> StepId {
        let step = StepId(Ulid::new());
        self.commit([InstallCommand::Reserve { resource, run, step }]);
        step
    }

    fn record(&mut self, run: RunId, step: StepId, result: StepResult) {
        let release = InstallCommand::Release { run, step };
        self.commit([InstallCommand::RecordResult { run, step, result }, release]);
    }

    fn provision_sandbox(&mut self, run: RunId) {
        let step = self.reserve(run, Resource::Sandbox);
        let result = StepResult::SandboxProvisioned {
            build: BuildId(Ulid(4)),
            config_version: self.install.config_version,
            fingerprint: format!("sha256:{:064x}", 1).parse().unwrap(),
            outputs: Outputs::new(),
        };
        self.record(run, step, result);
    }

    /// Starts an apply of a component and leaves it unfinished.
    fn begin_apply(&mut self, run: RunId, name: &str) -> StepId {
        let step = self.reserve(run, Resource::Component(name.into()));
        let changing = ResourceChange::Component {
            name: name.into(),
            component: ComponentId(Ulid(5)),
            build: BuildId(Ulid(4)),
            config_version: self.install.config_version,
            depends_on: BTreeSet::new(),
        };
        self.commit([InstallCommand::StartApply { run, step, change: changing }]);
        step
    }

    fn deploy(&mut self, run: RunId, name: &str) {
        let step = self.begin_apply(run, name);
        let result = StepResult::ComponentDeployed {
            name: name.into(),
            component: ComponentId(Ulid(5)),
            build: BuildId(Ulid(4)),
            config_version: self.install.config_version,
            fingerprint: format!("sha256:{:064x}", 1).parse().unwrap(),
            depends_on: BTreeSet::new(),
            outputs: Outputs::new(),
        };
        self.record(run, step, result);
    }

    fn destroy(&mut self, run: RunId, name: &str) {
        let step = self.begin_apply(run, name);
        let (name, component) = (name.into(), ComponentId(Ulid(5)));
        self.record(run, step, StepResult::ComponentDestroyed { name, component });
    }

    fn destroy_sandbox(&mut self, run: RunId) {
        let step = self.reserve(run, Resource::Sandbox);
        self.record(run, step, StepResult::SandboxDestroyed);
    }

    fn close(&mut self, run: RunId, outcome: Outcome) {
        self.commit([InstallCommand::FinishRun { run, outcome }]);
    }

    fn state(&self) -> State {
        self.row.as_ref().unwrap().install_state()
    }
}

#[test]
fn an_install_is_empty_until_its_first_provision_succeeds() {
    assert_eq!(Scenario::begin().state(), State::WaitingForRunner);
    let mut scenario = Scenario::enrolled();
    assert_eq!(scenario.state(), State::Empty);
    let run = scenario.admit(RunKind::Provision);
    assert_eq!(scenario.state(), State::Provisioning);
    scenario.close(run, Outcome::Denied);
    assert_eq!(scenario.state(), State::Empty);
    assert_eq!(Scenario::provisioned().state(), State::Active);
}

#[test]
fn a_provision_that_failed_stays_failed_when_the_inputs_change_without_a_run() {
    let mut scenario = Scenario::enrolled();
    let run = scenario.admit(RunKind::Provision);
    scenario.close(run, Outcome::Failed);
    assert_eq!(scenario.pin(2, None), None);
    assert_eq!(scenario.state(), State::Failed);
}

#[test]
fn an_open_run_that_deploys_makes_the_install_updating() {
    for kind in [RunKind::Deploy, RunKind::InputUpdate, RunKind::Upgrade, RunKind::Rollback] {
        let mut scenario = Scenario::provisioned();
        let run = scenario.admit(kind);
        scenario.begin_apply(run, "web");
        assert_eq!(scenario.state(), State::Updating, "{kind:?}");
    }
}

#[test]
fn a_run_that_failed_makes_the_install_failed_until_another_succeeds() {
    let mut scenario = Scenario::provisioned();
    let run = scenario.pin(2, Some(RunKind::Upgrade)).unwrap();
    scenario.close(run, Outcome::Failed);
    assert_eq!(scenario.state(), State::Failed);
    let denied = scenario.admit(RunKind::Upgrade);
    scenario.close(denied, Outcome::Denied);
    assert_eq!(scenario.state(), State::Failed, "the denied run changed nothing");
    let retry = scenario.admit(RunKind::Upgrade);
    scenario.deploy(retry, "web");
    scenario.close(retry, Outcome::Succeeded);
    assert_eq!(scenario.state(), State::Active);
}

/// A lost job fails its step and its run. So does an unknown outcome that a user resolved as failed.
#[test]
fn a_lost_apply_leaves_the_install_failed_and_its_component_incomplete() {
    let mut scenario = Scenario::provisioned();
    let run = scenario.pin(2, Some(RunKind::Upgrade)).unwrap();
    scenario.begin_apply(run, "web");
    assert_eq!(scenario.state(), State::Updating, "the outcome is unknown while the run is open");
    scenario.close(run, Outcome::Failed);
    assert_eq!(scenario.state(), State::Failed);
    assert_eq!(scenario.row.as_ref().unwrap().state.components["web"].fingerprint, None);
}

#[test]
fn a_rollback_without_changes_makes_a_failed_install_active() {
    let mut scenario = Scenario::provisioned();
    let run = scenario.pin(2, Some(RunKind::Upgrade)).unwrap();
    scenario.close(run, Outcome::Failed);
    assert_eq!(scenario.pin(1, None), None);
    assert_eq!(scenario.state(), State::Active);
    // The failure stays superseded when a later run changes nothing.
    let denied = scenario.pin(3, Some(RunKind::Upgrade)).unwrap();
    assert_eq!(scenario.state(), State::Updating);
    scenario.close(denied, Outcome::Denied);
    assert_eq!(scenario.state(), State::Active);
}

#[test]
fn a_rollback_that_needs_a_run_supersedes_a_failure_only_when_the_run_succeeds() {
    let mut scenario = Scenario::provisioned();
    let run = scenario.pin(2, Some(RunKind::Upgrade)).unwrap();
    scenario.deploy(run, "web");
    scenario.close(run, Outcome::Failed);
    let denied = scenario.pin(1, Some(RunKind::Rollback)).unwrap();
    scenario.close(denied, Outcome::Denied);
    assert_eq!(scenario.state(), State::Failed);
    let rollback = scenario.admit(RunKind::Rollback);
    scenario.deploy(rollback, "web");
    scenario.close(rollback, Outcome::Succeeded);
    assert_eq!(scenario.state(), State::Active);
}

#[test]
fn a_run_that_ended_early_leaves_the_install_unchanged_or_incomplete() {
    for outcome in [Outcome::Cancelled, Outcome::Denied, Outcome::Expired] {
        let mut scenario = Scenario::provisioned();
        let run = scenario.admit(RunKind::Upgrade);
        scenario.close(run, outcome);
        assert_eq!(scenario.state(), State::Active, "{outcome:?} before a change");
        let run = scenario.admit(RunKind::Upgrade);
        scenario.deploy(run, "web");
        scenario.close(run, outcome);
        assert_eq!(scenario.state(), State::Incomplete, "{outcome:?} after a change");
    }
}

#[test]
fn a_cancelled_apply_that_left_a_component_incomplete_makes_the_install_incomplete() {
    let mut scenario = Scenario::provisioned();
    let run = scenario.admit(RunKind::Deploy);
    let step = scenario.begin_apply(run, "web");
    scenario.commit([InstallCommand::Release { run, step }]);
    scenario.close(run, Outcome::Cancelled);
    assert_eq!(scenario.state(), State::Incomplete);
    let other = scenario.admit(RunKind::Deploy);
    scenario.deploy(other, "api");
    scenario.close(other, Outcome::Succeeded);
    assert_eq!(scenario.state(), State::Incomplete, "another component does not mend this one");
}

#[test]
fn a_cancelled_apply_after_a_failed_run_makes_the_install_incomplete() {
    let mut scenario = Scenario::provisioned();
    let failed = scenario.admit(RunKind::Deploy);
    let step = scenario.begin_apply(failed, "web");
    scenario.commit([InstallCommand::Release { run: failed, step }]);
    scenario.close(failed, Outcome::Failed);
    assert_eq!(scenario.state(), State::Failed);
    let cancelled = scenario.admit(RunKind::Deploy);
    let step = scenario.begin_apply(cancelled, "web");
    scenario.commit([InstallCommand::Release { run: cancelled, step }]);
    scenario.close(cancelled, Outcome::Cancelled);
    assert_eq!(scenario.state(), State::Incomplete);
}

#[test]
fn a_cancelled_apply_that_changed_nothing_leaves_the_install_active() {
    let mut scenario = Scenario::provisioned();
    let run = scenario.admit(RunKind::Deploy);
    let step = scenario.begin_apply(run, "web");
    let resource = Resource::Component("web".into());
    scenario.commit([
        InstallCommand::RecordApplyNotRun { run, step, resource },
        InstallCommand::Release { run, step },
    ]);
    scenario.close(run, Outcome::Cancelled);
    assert_eq!(scenario.state(), State::Active);
}

#[test]
fn a_teardown_and_a_deprovision_end_in_their_states() {
    let mut scenario = Scenario::provisioned();
    let teardown = scenario.admit(RunKind::Teardown);
    scenario.destroy(teardown, "web");
    assert_eq!(scenario.state(), State::TearingDown);
    scenario.close(teardown, Outcome::Cancelled);
    assert_eq!(scenario.state(), State::Incomplete, "api is left");
    let rest = scenario.admit(RunKind::Teardown);
    scenario.destroy(rest, "api");
    scenario.close(rest, Outcome::Succeeded);
    assert_eq!(scenario.state(), State::TornDown);
    let deprovision = scenario.admit(RunKind::Deprovision);
    assert_eq!(scenario.state(), State::Deprovisioning);
    scenario.destroy_sandbox(deprovision);
    scenario.close(deprovision, Outcome::Succeeded);
    assert_eq!(scenario.state(), State::Deprovisioned);
}

#[test]
fn an_upgrade_that_removes_every_component_leaves_the_install_active() {
    let mut scenario = Scenario::provisioned();
    let run = scenario.pin(2, Some(RunKind::Upgrade)).unwrap();
    scenario.destroy(run, "web");
    scenario.destroy(run, "api");
    scenario.close(run, Outcome::Succeeded);
    assert_eq!(scenario.state(), State::Active, "its sandbox is there, and no teardown ran");
}

#[test]
fn an_action_does_not_change_the_state() {
    for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled] {
        let mut scenario = Scenario::provisioned();
        let run = scenario.admit(RunKind::Action);
        assert_eq!(scenario.state(), State::Active);
        scenario.close(run, outcome);
        assert_eq!(scenario.state(), State::Active, "{outcome:?}");
    }
}

#[test]
fn the_documentation_lists_every_state() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let section = docs.split("\n## ").find(|part| part.starts_with("State of an install")).unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let listed: Vec<&str> = rows.map(|(name, _)| name).collect();
    assert_eq!(listed, State::ALL.map(State::as_str));
}
