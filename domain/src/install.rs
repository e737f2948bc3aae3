//! An install is one copy of an app in one customer's account. The aggregate pins a config version,
//! admits runs, reserves resources for their steps, and records the actual state.
use std::collections::BTreeSet;

use crate::{
    decider::{Decider, Timestamp},
    ids::{InstallId, RunId, StepId},
    run::{RunKind, Target},
};

mod command;
mod error;
mod event;
mod output_versions;
mod recovery;
mod reserve;
mod state;
mod state_versions;
#[cfg(test)]
mod tests;
pub use crate::outputs::Outputs;
pub use command::{InstallCommand, Resource, ResourceChange, StepResult};
pub use error::InstallError;
pub use event::InstallEvent;
pub use output_versions::OutputVersions;
pub use recovery::Recovery;
pub use state::{Admitted, BeforeApply, Deployed, FirstProvision, Holder, Install, Sandbox, Stack};
pub use state_versions::{KnownState, is_component_name};

type Decision = Result<Vec<InstallEvent>, InstallError>;

impl Decider for Install {
    const NAME: &'static str = "install";
    type Command = InstallCommand;
    type Event = InstallEvent;
    type Error = InstallError;

    fn decide(&self, command: InstallCommand, _now: Timestamp) -> Decision {
        if let InstallCommand::Create { app, name, config_version, inputs, auto_approve } = command
        {
            let created = InstallEvent::Created { app, name, config_version, inputs, auto_approve };
            return match &self.app {
                None => Ok(vec![created]),
                Some(_) if self.as_created() == Some(created) => Ok(vec![]),
                Some(_) => Err(InstallError::AlreadyCreated),
            };
        }
        if self.app.is_none() {
            return Err(InstallError::NotFound);
        }
        match command {
            // The code above handles `Create`, the only command for an install that does not exist.
            InstallCommand::Create { .. } => Ok(vec![]),
            InstallCommand::ChangeInputs { mut set, mut unset, by, reason } => {
                set.retain(|name, value| self.inputs.get(name) != Some(value));
                unset.retain(|name| self.inputs.contains_key(name) && !set.contains_key(name));
                let is_unchanged = set.is_empty() && unset.is_empty();
                self.unless_deploying(
                    !is_unchanged,
                    InstallEvent::InputsChanged { set, unset, by, reason },
                )
            }
            InstallCommand::PinConfig { config_version, by, reason } => self.unless_deploying(
                self.config_version != config_version,
                InstallEvent::ConfigPinned { config_version, by, reason },
            ),
            InstallCommand::SetAutoApprove { auto_approve, by, reason } => Ok(event_if(
                // Turning automatic approval off also revokes the advance approval of the first
                // provision.
                self.auto_approve != auto_approve
                    || (!auto_approve && self.first_provision != FirstProvision::ByDecision),
                InstallEvent::AutoApproveChanged { auto_approve, by, reason },
            )),
            InstallCommand::AutoApproveFirst { .. } if self.had_deploy => {
                Err(InstallError::NotFirstProvision)
            }
            InstallCommand::AutoApproveFirst { by } => Ok(event_if(
                self.first_provision == FirstProvision::ByDecision,
                InstallEvent::FirstProvisionAutoApproved { by },
            )),
            InstallCommand::SetComponentEnabled { name, enabled, by, reason } => {
                let changes = self.toggles.get(&name) != Some(&enabled);
                let event = match enabled {
                    true => InstallEvent::ComponentEnabled { name, by, reason },
                    false => InstallEvent::ComponentDisabled { name, by, reason },
                };
                self.unless_deploying(changes, event)
            }
            InstallCommand::ReportStackOutputs { runner, outputs, replaces } => match &self.stack {
                Some(stack) if stack.runner == runner && stack.outputs == outputs => Ok(vec![]),
                Some(stack) if stack.runner != runner && replaces != Some(stack.runner) => {
                    Err(InstallError::HasRunner { runner: stack.runner })
                }
                Some(_) | None => Ok(vec![InstallEvent::StackOutputsReported { runner, outputs }]),
            },
            InstallCommand::SetStackOutputs { outputs, by, reason } => self.unless_deploying(
                self.vendor_outputs != outputs,
                InstallEvent::StackOutputsSet { outputs, by, reason },
            ),
            InstallCommand::AdmitRun { run, kind, components } => self.admit(run, kind, components),
            InstallCommand::FinishRun { run, outcome } => match self.runs.get(&run) {
                None => Ok(vec![]),
                Some(admitted) => {
                    let is_deprovisioned = admitted.kind == RunKind::Deprovision
                        && self.sandbox.is_none()
                        && self.components.is_empty();
                    let mut events = vec![InstallEvent::RunFinished { run, outcome }];
                    events.extend(event_if(
                        is_deprovisioned,
                        InstallEvent::Deprovisioned { run: Some(run) },
                    ));
                    Ok(events)
                }
            },
            InstallCommand::Deprovision => match self.runs.iter().next() {
                Some((run, admitted)) => {
                    Err(InstallError::Excluded { run: *run, kind: admitted.kind })
                }
                None if self.sandbox.is_some() || !self.components.is_empty() => {
                    Err(InstallError::HasResources)
                }
                None => {
                    Ok(event_if(!self.deprovisioned, InstallEvent::Deprovisioned { run: None }))
                }
            },
            InstallCommand::Reserve { resource, run, step } => self.reserve(resource, run, step),
            InstallCommand::Release { run, step } => Ok(self.release(run, step)),
            InstallCommand::StartApply { run, step, change } => self.start_apply(run, step, change),
            InstallCommand::RecordApplyNotRun { run, step, resource } => {
                self.record_apply_not_run(run, step, resource)
            }
            InstallCommand::RecordState { name, run, step, state } => {
                Ok(self.record_state(name, run, step, state))
            }
            InstallCommand::AcceptState { name, state, by, reason } => {
                self.accept_state(name, state, by, reason)
            }
            InstallCommand::AwaitState { name, run, step, state } => {
                Ok(self.await_state(name, run, step, state))
            }
            InstallCommand::RecordStateArrival { name, state, is_decided } => {
                Ok(self.record_state_arrival(name, state, is_decided))
            }
            InstallCommand::Recover(recovery) => self.recover(recovery),
            InstallCommand::RecordResult { run, step, result } => {
                self.record_result(run, step, result)
            }
        }
    }

    fn evolve(&mut self, event: InstallEvent) {
        self.apply(event);
    }

    fn customer(&self, id: &str) -> Option<InstallId> {
        id.parse().ok()
    }
}

impl Install {
    /// Admits a run unless the install is deprovisioned or has no runner, or a run in progress
    /// excludes the new run.
    ///
    /// A provision, reprovision, teardown or deprovision excludes every other run. Other runs may
    /// be concurrent if they change different components. An action and a drift check change no
    /// component. A drift check reserves each part while it checks it, so it waits for a step that
    /// changes the part, and such a step waits for the check.
    fn admit(&self, run: RunId, kind: RunKind, components: BTreeSet<String>) -> Decision {
        if self.runs.contains_key(&run) {
            return Ok(vec![]);
        }
        if self.deprovisioned {
            return Err(InstallError::Deprovisioned);
        }
        if self.stack.is_none() {
            return Err(InstallError::NoRunner);
        }
        for (other, admitted) in &self.runs {
            let overlap = admitted.components.is_empty()
                || components.is_empty()
                || !admitted.components.is_disjoint(&components);
            let is_compatible = match (RunScope::of(admitted.kind), RunScope::of(kind)) {
                (
                    RunScope::Everything,
                    RunScope::Everything | RunScope::Components | RunScope::Nothing,
                )
                | (RunScope::Components | RunScope::Nothing, RunScope::Everything) => false,
                (RunScope::Components, RunScope::Components) => !overlap,
                (RunScope::Nothing, RunScope::Components | RunScope::Nothing)
                | (RunScope::Components, RunScope::Nothing) => true,
            };
            if !is_compatible {
                return Err(InstallError::Excluded { run: *other, kind: admitted.kind });
            }
        }
        Ok(vec![InstallEvent::RunAdmitted { run, kind, components }])
    }

    /// Allows a change of the desired state only without an active deploy. A deploy renders config,
    /// inputs and stack outputs step by step, so a change during the deploy would affect only some
    /// steps.
    fn unless_deploying(&self, changes: bool, event: InstallEvent) -> Decision {
        match self.runs.iter().find(|(_, run)| is_deploy(run.kind)) {
            Some((run, admitted)) if changes => {
                Err(InstallError::DeployInProgress { run: *run, kind: admitted.kind })
            }
            Some(_) | None => Ok(event_if(changes, event)),
        }
    }

    /// Returns true while a run that deploys is in progress.
    pub fn has_active_deploy(&self) -> bool {
        self.runs.values().any(|run| is_deploy(run.kind))
    }

    fn as_created(&self) -> Option<InstallEvent> {
        self.app.map(|app| InstallEvent::Created {
            app,
            name: self.name.clone(),
            config_version: self.config_version,
            inputs: self.inputs.clone(),
            auto_approve: self.auto_approve,
        })
    }

    /// Returns the stack outputs for templates. Values from the runner take precedence over values
    /// from the vendor, because the runner is in the customer's account.
    pub fn stack_outputs(&self) -> Outputs {
        let mut outputs = self.vendor_outputs.clone();
        outputs.extend(self.stack.iter().flat_map(|stack| stack.outputs.clone()));
        outputs
    }

    /// Returns true if the install has the sandbox or the component, even incompletely.
    pub fn has(&self, target: &Target) -> bool {
        match target {
            Target::Sandbox { .. } => self.sandbox.is_some(),
            Target::Component { name, .. } => self.components.contains_key(name),
            Target::Action { .. } => false,
        }
    }

    /// Returns true if the step holds a resource of the install.
    pub fn is_holding(&self, run: RunId, step: StepId) -> bool {
        let holder = Holder { run, step };
        self.sandbox_holder == Some(holder) || self.holders.values().any(|other| *other == holder)
    }
}

/// Parts of an install that a run may change.
enum RunScope {
    Everything,
    Components,
    Nothing,
}

impl RunScope {
    fn of(kind: RunKind) -> RunScope {
        match kind {
            RunKind::Provision
            | RunKind::Reprovision
            | RunKind::Teardown
            | RunKind::Deprovision => RunScope::Everything,
            RunKind::Deploy | RunKind::InputUpdate | RunKind::Upgrade | RunKind::Rollback => {
                RunScope::Components
            }
            RunKind::Action | RunKind::Drift => RunScope::Nothing,
        }
    }
}

fn is_deploy(kind: RunKind) -> bool {
    match kind {
        RunKind::Provision
        | RunKind::Reprovision
        | RunKind::Deploy
        | RunKind::InputUpdate
        | RunKind::Upgrade
        | RunKind::Rollback => true,
        RunKind::Teardown | RunKind::Deprovision | RunKind::Action | RunKind::Drift => false,
    }
}

fn event_if(condition: bool, event: InstallEvent) -> Vec<InstallEvent> {
    if condition { vec![event] } else { vec![] }
}
