//! What we know of an install, and how a fact changes it.
use std::collections::{BTreeMap, BTreeSet};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{InstallEvent, Outputs, readings::Readings, state_versions::KnownState};
use crate::{
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, RunId, RunnerId, StepId},
    run::{
        RunKind,
        plan::{Present, PresentComponent},
    },
};

/// One copy of an app in one customer's account.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Install {
    /// Of which app; nothing before the install is created.
    pub app: Option<AppId>,
    /// Its name, unique at this vendor.
    pub name: String,
    /// The config version it is pinned to.
    pub config_version: u32,
    /// The values that were given, by input.
    pub inputs: BTreeMap<String, String>,
    /// Whether plans are applied without a person's word.
    pub auto_approve: bool,
    /// Whether the plans of its first provision are applied without an approval.
    #[serde(default)]
    pub first_provision: FirstProvision,
    /// Components that were enabled or disabled here, by name; others follow the config's default.
    #[serde(default)]
    pub toggles: BTreeMap<String, bool>,
    /// What the customer's stack gave its runner.
    pub stack: Option<Stack>,
    /// What the vendor says that it gives out.
    #[serde(default)]
    pub given: Outputs,
    /// The base infrastructure, where it is there.
    pub sandbox: Option<Sandbox>,
    /// What is deployed, by name.
    pub components: BTreeMap<String, Deployed>,
    /// The sandbox as it was before the apply that began last, until it is known what became of that.
    pub sandbox_before: Option<Before<Sandbox>>,
    /// The same of components, by name.
    pub before: BTreeMap<String, Before<Deployed>>,
    /// Which outputs became others, and who has read them since.
    pub readings: Readings,
    /// What scripts left behind, by action.
    pub actions: BTreeMap<String, Outputs>,
    /// Runs that may change the install now.
    pub runs: BTreeMap<RunId, Admitted>,
    /// Whether a run that brings things was ever admitted, whatever became of it.
    pub was_begun: bool,
    /// Who may change the sandbox now.
    pub sandbox_holder: Option<Holder>,
    /// Who may change a component now, by name.
    pub holders: BTreeMap<String, Holder>,
    /// Whether it was provisioned and is gone again.
    pub deprovisioned: bool,
    /// State of components, by name; the sandbox is `sandbox`.
    #[serde(default)]
    pub states: BTreeMap<String, KnownState>,
}

/// Approval of the plans of the first provision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
pub enum FirstProvision {
    /// By a decision on each plan, as in any run.
    #[default]
    ByDecision,
    /// Automatic, in the run that is admitted first.
    Automatic,
    /// Automatic in this run, which is the first one.
    AutomaticIn(RunId),
}

/// What the customer's stack gave its runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Stack {
    /// Which runner reported it.
    pub runner: RunnerId,
    /// Account, region and whatever else the stack names.
    pub outputs: Outputs,
}

/// The base infrastructure of an install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Sandbox {
    /// What was brought.
    pub build: BuildId,
    /// The config version it was brought by.
    pub config_version: u32,
    /// What decided the result; none while an apply goes on, and after one that did not succeed.
    pub fingerprint: Option<Digest>,
    /// What templates may read of it.
    pub outputs: Outputs,
}

/// A component that is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Deployed {
    /// Which.
    pub component: ComponentId,
    /// What was brought.
    pub build: BuildId,
    /// The config version it was brought by.
    pub config_version: u32,
    /// What decided the result; none while an apply goes on, and after one that did not succeed.
    pub fingerprint: Option<Digest>,
    /// Components that it needs; while an apply goes on, and after one that did not succeed, also those
    /// that it needed before.
    pub depends_on: BTreeSet<String>,
    /// What templates may read of it.
    pub outputs: Outputs,
    /// How often outputs of others had changed when the step that brought it began to read them.
    pub read_at: u64,
}

/// What a thing was before an apply of it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Before<T> {
    /// Whose apply.
    pub by: Holder,
    /// What was there; none if nothing was.
    pub was: Option<T>,
}

/// A run that may change the install now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Admitted {
    /// What it does.
    pub kind: RunKind,
    /// Names of the components that it changes; none means all.
    pub components: BTreeSet<String>,
}

/// The step that holds something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct Holder {
    /// Whose step.
    pub run: RunId,
    /// Which.
    pub step: StepId,
}

impl Install {
    /// Components whose inclusion in deploys does not depend on the config's default. A deployed component stays included
    /// until a user disables it: a default of a later config version destroys nothing.
    pub fn component_choices(&self) -> BTreeMap<String, bool> {
        let deployed = self.components.keys().map(|name| (name.clone(), true));
        deployed.chain(self.toggles.clone()).collect()
    }

    /// What is there, as the planner of a run sees it.
    pub fn present(&self) -> Present {
        let component = |(name, has): (&String, &Deployed)| {
            let missed = self.missed(has);
            let Deployed { component, build, fingerprint, depends_on, .. } = has.clone();
            (name.clone(), PresentComponent { component, build, fingerprint, depends_on, missed })
        };
        Present {
            sandbox: self.sandbox.as_ref().map(|has| (has.build, has.fingerprint.clone())),
            components: self.components.iter().map(component).collect(),
        }
    }

    /// Whether a run is the first provision, and its plans need no approval.
    pub fn approves_first(&self, run: RunId) -> bool {
        self.first_provision == FirstProvision::AutomaticIn(run)
    }

    /// Whether nothing of it is there any more and nothing is about to be: what is kept of it is for reading only.
    pub fn is_over(&self) -> bool {
        self.deprovisioned && self.runs.is_empty()
    }

    pub(super) fn apply(&mut self, event: InstallEvent) {
        match event {
            InstallEvent::Created { app, name, config_version, inputs, auto_approve } => {
                *self = Install {
                    app: Some(app),
                    name,
                    config_version,
                    inputs,
                    auto_approve,
                    ..Install::default()
                };
            }
            InstallEvent::InputsChanged { set, unset, .. } => {
                self.inputs.extend(set);
                self.inputs.retain(|name, _| !unset.contains(name));
            }
            InstallEvent::ConfigPinned { config_version, .. } => {
                self.config_version = config_version;
            }
            InstallEvent::AutoApproveChanged { auto_approve, .. } => {
                self.auto_approve = auto_approve;
                self.first_provision = FirstProvision::ByDecision;
            }
            InstallEvent::FirstProvisionAutoApproved { .. } => {
                self.first_provision = FirstProvision::Automatic;
            }
            InstallEvent::ComponentEnabled { name, .. } => drop(self.toggles.insert(name, true)),
            InstallEvent::ComponentDisabled { name, .. } => drop(self.toggles.insert(name, false)),
            InstallEvent::StackOutputsReported { runner, outputs } => {
                self.stack = Some(Stack { runner, outputs });
            }
            InstallEvent::StackOutputsSet { outputs, .. } => self.given = outputs,
            InstallEvent::RunAdmitted { run, kind, components } => {
                if self.first_provision == FirstProvision::Automatic && super::brings(kind) {
                    self.first_provision = match kind {
                        RunKind::Provision => FirstProvision::AutomaticIn(run),
                        RunKind::Reprovision
                        | RunKind::Deploy
                        | RunKind::InputUpdate
                        | RunKind::Upgrade
                        | RunKind::Rollback
                        | RunKind::Teardown
                        | RunKind::Deprovision
                        | RunKind::Action => FirstProvision::ByDecision,
                    };
                }
                self.was_begun |= super::brings(kind);
                self.runs.insert(run, Admitted { kind, components });
            }
            InstallEvent::RunFinished { run, .. } => {
                self.runs.remove(&run);
                if self.approves_first(run) {
                    self.first_provision = FirstProvision::ByDecision;
                }
            }
            InstallEvent::ComponentReserved { name, run, step } => {
                self.readings.begin(&name);
                self.holders.insert(name, Holder { run, step });
            }
            InstallEvent::ComponentReleased { name, .. } => {
                self.readings.end(&name);
                self.holders.remove(&name);
            }
            InstallEvent::SandboxReserved { run, step } => {
                self.sandbox_holder = Some(Holder { run, step });
            }
            InstallEvent::SandboxReleased { .. } => self.sandbox_holder = None,
            InstallEvent::SandboxApplyStarted { run, step, build, config_version } => {
                let was = self.sandbox.take();
                let outputs = was.as_ref().map(|was| was.outputs.clone()).unwrap_or_default();
                self.sandbox_before = Some(Before { by: Holder { run, step }, was });
                self.deprovisioned = false;
                let fingerprint = None;
                self.sandbox = Some(Sandbox { build, config_version, fingerprint, outputs });
            }
            InstallEvent::SandboxApplyNotRun { .. } => {
                if let Some(before) = self.sandbox_before.take() {
                    self.sandbox = before.was;
                }
            }
            InstallEvent::SandboxProvisioned {
                build,
                config_version,
                fingerprint,
                outputs,
                ..
            } => {
                let fingerprint = Some(fingerprint);
                let before = self.sandbox.as_ref().map(|before| &before.outputs);
                self.readings.sandbox(before, &outputs);
                (self.deprovisioned, self.sandbox_before) = (false, None);
                self.sandbox = Some(Sandbox { build, config_version, fingerprint, outputs });
            }
            InstallEvent::SandboxDestroyed { .. } => {
                (self.sandbox, self.sandbox_before) = (None, None);
                self.state_destroyed("sandbox");
            }
            InstallEvent::ComponentApplyStarted {
                name,
                component,
                run,
                step,
                build,
                config_version,
                mut depends_on,
            } => {
                let was = self.components.remove(&name);
                let mut outputs = Outputs::new();
                if let Some(was) = &was {
                    // What is there may still use them: they must not go before it has moved off.
                    depends_on.extend(was.depends_on.iter().cloned());
                    outputs.clone_from(&was.outputs);
                }
                let (fingerprint, read_at) = (None, self.readings.begun(&name));
                let begun = Deployed {
                    component,
                    build,
                    config_version,
                    fingerprint,
                    depends_on,
                    outputs,
                    read_at,
                };
                self.deprovisioned = false;
                self.before.insert(name.clone(), Before { by: Holder { run, step }, was });
                self.components.insert(name, begun);
            }
            InstallEvent::ComponentApplyNotRun { name, .. } => {
                if let Some(before) = self.before.remove(&name) {
                    self.components.remove(&name);
                    self.components.extend(before.was.map(|was| (name, was)));
                }
            }
            InstallEvent::ComponentDeployed {
                name,
                component,
                build,
                config_version,
                fingerprint,
                depends_on,
                outputs,
                ..
            } => {
                let before = self.components.get(&name).map(|before| &before.outputs);
                self.readings.component(&name, before, &outputs);
                let (fingerprint, read_at) = (Some(fingerprint), self.readings.begun(&name));
                let deployed = Deployed {
                    component,
                    build,
                    config_version,
                    fingerprint,
                    depends_on,
                    outputs,
                    read_at,
                };
                self.deprovisioned = false;
                self.before.remove(&name);
                self.components.insert(name, deployed);
            }
            InstallEvent::ComponentDestroyed { name, .. } => {
                self.state_destroyed(&name);
                self.components.remove(&name);
                self.before.remove(&name);
            }
            InstallEvent::ActionCompleted { name, outputs, .. } => {
                self.actions.insert(name, outputs);
            }
            InstallEvent::StateRecorded { name, state, .. } => self.state_recorded(name, state),
            InstallEvent::StateAccepted { name, state, .. } => self.state_accepted(name, state),
            InstallEvent::Deprovisioned { .. } => self.deprovisioned = true,
        }
    }
}
