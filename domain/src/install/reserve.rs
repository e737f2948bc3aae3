//! Reservations: only one step at a time may change a resource. A step holds its resource from the
//! plan to the end of the step.
use super::{
    Decision, Holder, Install, InstallError, InstallEvent, Resource, ResourceChange, StepResult,
    state_versions::SANDBOX,
};
use crate::{
    ids::{RunId, StepId},
    run::RunKind,
};

impl Install {
    /// Reserves a resource. A step cannot reserve the sandbox while another step holds a component,
    /// or a component while another step holds the sandbox. A drift check of the sandbox changes
    /// nothing, so it can begin while other steps hold components. No step can reserve a component
    /// whose newest state only the runner's host has.
    pub(super) fn reserve(&self, resource: Resource, run: RunId, step: StepId) -> Decision {
        let by = Holder { run, step };
        let Some(admitted) = self.runs.get(&run) else { return Err(InstallError::NotAdmitted) };
        let name = match &resource {
            Resource::Sandbox => SANDBOX,
            Resource::Component(name) => name,
        };
        if let Some(state) = self.awaited_states.get(name) {
            let (name, state) = (name.to_owned(), state.clone());
            return Err(InstallError::StateAwaited { name, state });
        }
        let is_check = admitted.kind == RunKind::Drift;
        let other = |holder: &&Holder| **holder != by;
        match resource {
            Resource::Sandbox => {
                let components = self.holders.values().filter(|_| !is_check);
                let held = self.sandbox_holder.iter().chain(components).find(other);
                match held {
                    Some(by) => Err(InstallError::Held { by: *by }),
                    None if self.sandbox_holder == Some(by) => Ok(vec![]),
                    None => Ok(vec![InstallEvent::SandboxReserved { run, step }]),
                }
            }
            Resource::Component(name) => {
                let held = self.sandbox_holder.iter().chain(self.holders.get(&name));
                match held.clone().find(other) {
                    Some(by) => Err(InstallError::Held { by: *by }),
                    None if held.count() > 0 => Ok(vec![]),
                    None => Ok(vec![InstallEvent::ComponentReserved { name, run, step }]),
                }
            }
        }
    }

    pub(super) fn release(&self, run: RunId, step: StepId) -> Vec<InstallEvent> {
        let by = Holder { run, step };
        let mut events = vec![];
        if self.sandbox_holder == Some(by) {
            events.push(InstallEvent::SandboxReleased { run, step });
        }
        for (name, _) in self.holders.iter().filter(|(_, holder)| **holder == by) {
            let name = name.clone();
            events.push(InstallEvent::ComponentReleased { name, run, step });
        }
        events
    }

    /// Records that a change starts. A failed apply may leave resources, so the resource counts as
    /// deployed from the start of its apply. A rollback can then repair the resource, and a
    /// deprovision can destroy it.
    pub(super) fn start_apply(&self, run: RunId, step: StepId, change: ResourceChange) -> Decision {
        let by = Some(Holder { run, step });
        let is_holder = match &change {
            ResourceChange::Sandbox { .. } => self.sandbox_holder == by,
            ResourceChange::Component { name, .. } => self.holders.get(name).copied() == by,
        };
        if !is_holder {
            return Err(InstallError::ResourceNotHeld);
        }
        Ok(vec![match change {
            ResourceChange::Sandbox { build, config_version } => {
                InstallEvent::SandboxApplyStarted { run, step, build, config_version }
            }
            ResourceChange::Component { name, component, build, config_version, depends_on } => {
                InstallEvent::ComponentApplyStarted {
                    name,
                    component,
                    run,
                    step,
                    build,
                    config_version,
                    depends_on,
                }
            }
        }])
    }

    /// Records that an apply changed nothing, which restores the earlier state of its resource. Has
    /// no effect if the resource has a later apply or a result.
    pub(super) fn record_apply_not_run(
        &self,
        run: RunId,
        step: StepId,
        resource: Resource,
    ) -> Decision {
        let by = Holder { run, step };
        let (holder, last_apply) = match &resource {
            Resource::Sandbox => {
                (self.sandbox_holder, self.sandbox_before_apply.as_ref().map(|before| before.by))
            }
            Resource::Component(name) => (
                self.holders.get(name).copied(),
                self.before_apply.get(name).map(|before| before.by),
            ),
        };
        if holder != Some(by) {
            return Err(InstallError::ResourceNotHeld);
        }
        if last_apply != Some(by) {
            return Ok(vec![]);
        }
        Ok(match resource {
            Resource::Sandbox => vec![InstallEvent::SandboxApplyNotRun { run, step }],
            Resource::Component(name) => {
                let component = self.components.get(&name).map(|deployed| deployed.component);
                let event =
                    |component| InstallEvent::ComponentApplyNotRun { name, component, run, step };
                component.map(event).into_iter().collect()
            }
        })
    }

    /// Records the result of a step. Only the step that holds a resource may report a change of the
    /// resource. An action holds no resource.
    pub(super) fn record_result(&self, run: RunId, step: StepId, result: StepResult) -> Decision {
        let by = Some(Holder { run, step });
        let is_holder = match &result {
            StepResult::SandboxProvisioned { .. } | StepResult::SandboxDestroyed => {
                self.sandbox_holder == by
            }
            StepResult::ComponentDeployed { name, .. }
            | StepResult::ComponentDestroyed { name, .. } => self.holders.get(name).copied() == by,
            StepResult::ActionCompleted { .. } => self.runs.contains_key(&run),
        };
        if !is_holder {
            return Err(InstallError::ResourceNotHeld);
        }
        Ok(vec![match result {
            StepResult::SandboxProvisioned { build, config_version, fingerprint, outputs } => {
                InstallEvent::SandboxProvisioned {
                    run,
                    step,
                    build,
                    config_version,
                    fingerprint,
                    outputs,
                }
            }
            StepResult::SandboxDestroyed => InstallEvent::SandboxDestroyed { run, step },
            StepResult::ComponentDeployed {
                name,
                component,
                build,
                config_version,
                fingerprint,
                depends_on,
                outputs,
            } => InstallEvent::ComponentDeployed {
                name,
                component,
                run,
                step,
                build,
                config_version,
                fingerprint,
                depends_on,
                outputs,
            },
            StepResult::ComponentDestroyed { name, component } => {
                InstallEvent::ComponentDestroyed { name, component, run, step }
            }
            StepResult::ActionCompleted { name, outputs } => {
                InstallEvent::ActionCompleted { name, run, step, outputs }
            }
        }])
    }
}
