//! State of an install, folded from its events.
use std::collections::{BTreeMap, BTreeSet};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{InstallEvent, Outputs, output_versions::OutputVersions, state_versions::KnownState};
use crate::{
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, RunId, RunnerId, StepId},
    run::{
        RunKind,
        plan::{ActualComponent, ActualState},
    },
};

/// One copy of an app in one customer's account.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Install {
    /// App of the install; none before the install is created.
    pub app: Option<AppId>,
    /// Name, unique at this vendor.
    pub name: String,
    /// Pinned config version.
    pub config_version: u32,
    /// Input values, by input name.
    pub inputs: BTreeMap<String, String>,
    /// True if plans are applied without approval.
    pub auto_approve: bool,
    /// Approval of the plans of the first provision.
    #[serde(default)]
    pub first_provision: FirstProvision,
    /// True for each enabled component and false for each disabled one, by name. Other components
    /// follow the config's default.
    #[serde(default)]
    pub toggles: BTreeMap<String, bool>,
    /// Stack outputs that the runner reported.
    pub stack: Option<Stack>,
    /// Stack outputs that the vendor set.
    #[serde(default)]
    pub vendor_outputs: Outputs,
    /// The base infrastructure, if it exists.
    pub sandbox: Option<Sandbox>,
    /// Deployed components, by name.
    pub components: BTreeMap<String, Deployed>,
    /// Sandbox before the last apply, until the result of that apply is known.
    pub sandbox_before_apply: Option<BeforeApply<Sandbox>>,
    /// Components before their last apply, until the result of that apply is known, by name.
    pub before_apply: BTreeMap<String, BeforeApply<Deployed>>,
    /// Order of output changes and of the steps that read outputs.
    pub output_versions: OutputVersions,
    /// Outputs of scripts, by action.
    pub actions: BTreeMap<String, Outputs>,
    /// Runs that may change the install now.
    pub runs: BTreeMap<RunId, Admitted>,
    /// True once a run that deploys was admitted, whatever its outcome.
    pub had_deploy: bool,
    /// Step that may change the sandbox now.
    pub sandbox_holder: Option<Holder>,
    /// Steps that may change a component now, by component name.
    pub holders: BTreeMap<String, Holder>,
    /// True while the install is deprovisioned.
    pub deprovisioned: bool,
    /// State of components, by name; the sandbox is `sandbox`.
    #[serde(default)]
    pub states: BTreeMap<String, KnownState>,
}

/// Approval of the plans of the first provision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
pub enum FirstProvision {
    /// Each plan needs its own decision, as in any other run.
    #[default]
    ByDecision,
    /// The first run that deploys needs no approval of its plans, if this run is a provision.
    Automatic,
    /// This run, the first one that deploys, needs no approval of its plans.
    AutomaticIn(RunId),
}

/// Stack outputs that the runner reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Stack {
    /// Runner that reported the outputs.
    pub runner: RunnerId,
    /// Account, region and all other outputs of the stack.
    pub outputs: Outputs,
}

/// The base infrastructure of an install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Sandbox {
    /// Deployed build.
    pub build: BuildId,
    /// Config version of the run that deployed the sandbox.
    pub config_version: u32,
    /// Digest of everything that determines the result; none during an apply and after one that did
    /// not succeed.
    pub fingerprint: Option<Digest>,
    /// Outputs that templates may read.
    pub outputs: Outputs,
}

/// Deployed component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Deployed {
    pub component: ComponentId,
    /// Deployed build.
    pub build: BuildId,
    /// Config version of the run that deployed the component.
    pub config_version: u32,
    /// Digest of everything that determines the result; none during an apply and after one that did
    /// not succeed.
    pub fingerprint: Option<Digest>,
    /// Names of the components that this component depends on. During an apply, and after one that
    /// did not succeed, these include the earlier dependencies.
    pub depends_on: BTreeSet<String>,
    /// Outputs that templates may read.
    pub outputs: Outputs,
    /// Number of output changes when the deploying step began to read outputs.
    pub read_at: u64,
}

/// Resource as it was before an apply of it started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct BeforeApply<T> {
    /// Step of the apply.
    pub by: Holder,
    /// Earlier state; none if the resource did not exist.
    pub previous: Option<T>,
}

/// A run that may change the install now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Admitted {
    /// Operation of the run.
    pub kind: RunKind,
    /// Names of the components that the run changes. Empty: all components.
    pub components: BTreeSet<String>,
}

/// Step that holds a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct Holder {
    /// Run of the step.
    pub run: RunId,
    pub step: StepId,
}

impl Install {
    /// Returns the components whose inclusion in deploys does not depend on the config's default. A
    /// deployed component stays included until a user disables it, so that a default of a later
    /// config version destroys nothing.
    pub fn component_choices(&self) -> BTreeMap<String, bool> {
        let deployed = self.components.keys().map(|name| (name.clone(), true));
        deployed.chain(self.toggles.clone()).collect()
    }

    /// Returns the actual state for the planner of a run.
    pub fn actual_state(&self) -> ActualState {
        let component = |(name, has): (&String, &Deployed)| {
            let missed = self.stale_outputs(has);
            let Deployed { component, build, fingerprint, depends_on, .. } = has.clone();
            (
                name.clone(),
                ActualComponent {
                    component,
                    build,
                    fingerprint,
                    depends_on,
                    stale_outputs: missed,
                },
            )
        };
        ActualState {
            sandbox: self.sandbox.as_ref().map(|has| (has.build, has.fingerprint.clone())),
            components: self.components.iter().map(component).collect(),
        }
    }

    /// Returns true if the run is the first provision and its plans need no approval.
    pub fn approves_first(&self, run: RunId) -> bool {
        self.first_provision == FirstProvision::AutomaticIn(run)
    }

    /// Returns true if the install is deprovisioned and has no run in progress. It is then
    /// read-only.
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
                if self.first_provision == FirstProvision::Automatic && super::deploys(kind) {
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
                self.had_deploy |= super::deploys(kind);
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
                let was = self.sandbox.take();
                let outputs = was.as_ref().map(|was| was.outputs.clone()).unwrap_or_default();
                self.sandbox_before_apply =
                    Some(BeforeApply { by: Holder { run, step }, previous: was });
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
                self.output_versions.sandbox(before, &outputs);
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
                let was = self.components.remove(&name);
                let mut outputs = Outputs::new();
                if let Some(was) = &was {
                    // The deployed version may still use its earlier dependencies. They must not be
                    // destroyed before it is replaced.
                    depends_on.extend(was.depends_on.iter().cloned());
                    outputs.clone_from(&was.outputs);
                }
                let (fingerprint, read_at) = (None, self.output_versions.begun(&name));
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
                self.before_apply
                    .insert(name.clone(), BeforeApply { by: Holder { run, step }, previous: was });
                self.components.insert(name, begun);
            }
            InstallEvent::ComponentApplyNotRun { name, .. } => {
                if let Some(before) = self.before_apply.remove(&name) {
                    self.components.remove(&name);
                    self.components.extend(before.previous.map(|was| (name, was)));
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
                self.output_versions.component(&name, before, &outputs);
                let (fingerprint, read_at) = (Some(fingerprint), self.output_versions.begun(&name));
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
            InstallEvent::Deprovisioned { .. } => self.deprovisioned = true,
        }
    }
}
