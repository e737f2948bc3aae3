//! State of an install, folded from its events.
use std::collections::{BTreeMap, BTreeSet};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{
    InstallEvent, Outputs, Recovery, output_versions::OutputVersions, state_versions::KnownState,
};
use crate::{
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, RunId, RunnerId, StepId},
    run::{
        RunKind,
        plan::{ActualComponent, ActualState},
    },
    state_version::StateVersion,
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Install {
    /// App of the install. `None` before the install is created.
    pub app: Option<AppId>,
    /// Name, unique among the installs that are not deprovisioned.
    pub name: String,
    /// Config version that deploys use.
    pub config_version: u32,
    /// Input values, by input name.
    pub inputs: BTreeMap<String, String>,
    /// True if all plans are approved automatically.
    pub auto_approve: bool,
    /// Advance approval of the plans of the first provision.
    #[serde(default)]
    pub first_provision: FirstProvision,
    /// Users' choices by component name: true includes the component in deploys, false excludes it.
    /// Other components follow the default of the config.
    #[serde(default)]
    pub toggles: BTreeMap<String, bool>,
    /// Stack outputs of the enrolled runner. `None` before a runner enrolled.
    pub stack: Option<Stack>,
    /// Stack outputs that the vendor set.
    #[serde(default)]
    pub vendor_outputs: Outputs,
    /// The base infrastructure. `None` if the account has none.
    pub sandbox: Option<Sandbox>,
    /// Deployed components, by name.
    pub components: BTreeMap<String, Deployed>,
    /// Sandbox before the last apply. `None` after a result of that apply.
    pub sandbox_before_apply: Option<BeforeApply<Sandbox>>,
    /// Components before their last apply, by name. A result of the apply removes the entry.
    pub before_apply: BTreeMap<String, BeforeApply<Deployed>>,
    pub output_versions: OutputVersions,
    /// Outputs of the last successful execution of each action, by name.
    pub actions: BTreeMap<String, Outputs>,
    /// Admitted runs that have not finished.
    pub runs: BTreeMap<RunId, Admitted>,
    /// True after a run that deploys was admitted, regardless of its outcome.
    pub had_deploy: bool,
    /// Step that reserved the sandbox.
    pub sandbox_holder: Option<Holder>,
    /// Steps that reserved a component, by component name.
    pub holders: BTreeMap<String, Holder>,
    /// True if the account has no resources of the install any more.
    pub deprovisioned: bool,
    /// Known state versions of the components, by name. The sandbox has the name `sandbox`.
    #[serde(default)]
    pub states: BTreeMap<String, KnownState>,
    /// State versions that only the runner's host has, by component name. No step may begin to
    /// change these components.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub awaited_states: BTreeMap<String, StateVersion>,
    /// Recoveries of the install's keys, oldest first, without their states.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recoveries: Vec<Recovery>,
}

/// Advance approval of the plans of the first provision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
pub enum FirstProvision {
    /// Each plan of the first provision needs its own approval.
    #[default]
    ByDecision,
    /// The plans of the first run that deploys need no approval, if this run is a provision.
    Automatic,
    /// The plans of this run need no approval. The run is a provision, and the first run that
    /// deploys.
    AutomaticIn(RunId),
}

/// Stack outputs of an enrolled runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Stack {
    pub runner: RunnerId,
    /// Outputs by name, for example account and region.
    pub outputs: Outputs,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Sandbox {
    pub build: BuildId,
    /// Config version of the last run that started an apply of the sandbox, or whose plan for it
    /// had no changes.
    pub config_version: u32,
    /// See [`crate::run::StepSpec::fingerprint`]. `None` during an apply, and after an apply that
    /// did not succeed.
    pub fingerprint: Option<Digest>,
    /// Outputs that templates may read.
    pub outputs: Outputs,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Deployed {
    pub component: ComponentId,
    pub build: BuildId,
    /// Config version of the last run that started an apply of the component, or whose plan for it
    /// had no changes.
    pub config_version: u32,
    /// See [`crate::run::StepSpec::fingerprint`]. `None` during an apply, and after an apply that
    /// did not succeed.
    pub fingerprint: Option<Digest>,
    /// Names of the direct dependencies. During an apply, and after an apply that did not succeed,
    /// they include the earlier dependencies.
    pub depends_on: BTreeSet<String>,
    /// Outputs that templates may read.
    pub outputs: Outputs,
    /// Number of output changes of the install when the step that deployed the component began.
    pub read_at: u64,
}

/// State of a resource before its last apply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct BeforeApply<T> {
    pub by: Holder,
    /// Earlier state. `None` if the resource did not exist.
    pub previous: Option<T>,
}

/// Admitted run that has not finished.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Admitted {
    pub kind: RunKind,
    /// Names of the components that the run changes. Two runs that change components exclude each
    /// other if they share a name, or if one of the sets is empty.
    pub components: BTreeSet<String>,
}

/// Step that reserved a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct Holder {
    pub run: RunId,
    pub step: StepId,
}

impl Install {
    /// Returns the components whose inclusion in deploys does not depend on the default of the
    /// config.
    ///
    /// A deployed component stays included until a user disables it. Otherwise another default in a
    /// later config version would destroy the component.
    pub fn component_choices(&self) -> BTreeMap<String, bool> {
        let deployed = self.components.keys().map(|name| (name.clone(), true));
        deployed.chain(self.toggles.clone()).collect()
    }

    /// Returns the actual state for the planner of a run.
    pub fn actual_state(&self) -> ActualState {
        let component = |(name, deployed): (&String, &Deployed)| {
            let stale_outputs = self.stale_outputs(deployed);
            let Deployed { component, build, fingerprint, depends_on, .. } = deployed.clone();
            (
                name.clone(),
                ActualComponent { component, build, fingerprint, depends_on, stale_outputs },
            )
        };
        ActualState {
            sandbox: self
                .sandbox
                .as_ref()
                .map(|deployed| (deployed.build, deployed.fingerprint.clone())),
            components: self.components.iter().map(component).collect(),
        }
    }

    /// Returns true if the run is the first provision and its plans need no approval.
    pub fn approves_first(&self, run: RunId) -> bool {
        self.first_provision == FirstProvision::AutomaticIn(run)
    }

    /// Returns true if the install is deprovisioned and no run is in progress.
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
            InstallEvent::StackOutputsSet { outputs, .. } => self.vendor_outputs = outputs,
            InstallEvent::RunAdmitted { run, kind, components } => {
                if self.first_provision == FirstProvision::Automatic && super::is_deploy(kind) {
                    self.first_provision = match kind {
                        RunKind::Provision => FirstProvision::AutomaticIn(run),
                        RunKind::Reprovision
                        | RunKind::Deploy
                        | RunKind::InputUpdate
                        | RunKind::Upgrade
                        | RunKind::Rollback
                        | RunKind::Teardown
                        | RunKind::Deprovision
                        | RunKind::Action
                        | RunKind::Drift => FirstProvision::ByDecision,
                    };
                }
                self.had_deploy |= super::is_deploy(kind);
                self.runs.insert(run, Admitted { kind, components });
            }
            InstallEvent::RunFinished { run, .. } => {
                self.runs.remove(&run);
                if self.approves_first(run) {
                    self.first_provision = FirstProvision::ByDecision;
                }
            }
            InstallEvent::ComponentReserved { name, run, step } => {
                self.output_versions.begin(&name);
                self.holders.insert(name, Holder { run, step });
            }
            InstallEvent::ComponentReleased { name, .. } => {
                self.output_versions.end(&name);
                self.holders.remove(&name);
            }
            InstallEvent::SandboxReserved { run, step } => {
                self.sandbox_holder = Some(Holder { run, step });
            }
            InstallEvent::SandboxReleased { .. } => self.sandbox_holder = None,
            InstallEvent::SandboxApplyStarted { run, step, build, config_version } => {
                let previous = self.sandbox.take();
                let outputs =
                    previous.as_ref().map(|previous| previous.outputs.clone()).unwrap_or_default();
                self.sandbox_before_apply =
                    Some(BeforeApply { by: Holder { run, step }, previous });
                self.deprovisioned = false;
                let fingerprint = None;
                self.sandbox = Some(Sandbox { build, config_version, fingerprint, outputs });
            }
            InstallEvent::SandboxApplyNotRun { .. } => {
                if let Some(before) = self.sandbox_before_apply.take() {
                    self.sandbox = before.previous;
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
                self.output_versions.update_sandbox(before, &outputs);
                (self.deprovisioned, self.sandbox_before_apply) = (false, None);
                self.sandbox = Some(Sandbox { build, config_version, fingerprint, outputs });
            }
            InstallEvent::SandboxDestroyed { .. } => {
                (self.sandbox, self.sandbox_before_apply) = (None, None);
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
                let previous = self.components.remove(&name);
                let mut outputs = Outputs::new();
                if let Some(previous) = &previous {
                    // The deployed version may still use its earlier dependencies, so they must
                    // exist until the apply has replaced that version.
                    depends_on.extend(previous.depends_on.iter().cloned());
                    outputs.clone_from(&previous.outputs);
                }
                let (fingerprint, read_at) = (None, self.output_versions.began_at(&name));
                let applying = Deployed {
                    component,
                    build,
                    config_version,
                    fingerprint,
                    depends_on,
                    outputs,
                    read_at,
                };
                self.deprovisioned = false;
                self.before_apply
                    .insert(name.clone(), BeforeApply { by: Holder { run, step }, previous });
                self.components.insert(name, applying);
            }
            InstallEvent::ComponentApplyNotRun { name, .. } => {
                if let Some(before) = self.before_apply.remove(&name) {
                    self.components.remove(&name);
                    self.components.extend(before.previous.map(|component| (name, component)));
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
                self.output_versions.update_component(&name, before, &outputs);
                let (fingerprint, read_at) =
                    (Some(fingerprint), self.output_versions.began_at(&name));
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
                self.before_apply.remove(&name);
                self.components.insert(name, deployed);
            }
            InstallEvent::ComponentDestroyed { name, .. } => {
                self.state_destroyed(&name);
                self.components.remove(&name);
                self.before_apply.remove(&name);
            }
            InstallEvent::ActionCompleted { name, outputs, .. } => {
                self.actions.insert(name, outputs);
            }
            InstallEvent::StateRecorded { name, state, .. } => self.state_recorded(name, state),
            InstallEvent::StateAccepted { name, state, .. } => self.state_accepted(name, state),
            InstallEvent::StateAwaited { name, state, .. } => {
                self.awaited_states.insert(name, state);
            }
            InstallEvent::StateArrived { name, .. } => drop(self.awaited_states.remove(&name)),
            InstallEvent::Recovered(recovery) => self.recovered(recovery),
            InstallEvent::Deprovisioned { .. } => self.deprovisioned = true,
        }
    }
}
