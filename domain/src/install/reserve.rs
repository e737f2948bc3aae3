//! Who may change what: one step at a time, from its plan to its end.
use super::{
    Changing, Decision, Holder, Install, InstallError, InstallEvent, Resource, StepResult,
};
use crate::ids::{RunId, StepId};

impl Install {
    /// The sandbox's reservation excludes every component's, and the reverse.
    pub(super) fn reserve(&self, resource: Resource, run: RunId, step: StepId) -> Decision {
        let by = Holder { run, step };
        if !self.runs.contains_key(&run) {
            return Err(InstallError::NotAdmitted);
        }
        let other = |holder: &&Holder| **holder != by;
        match resource {
            Resource::Sandbox => {
                let held = self.sandbox_holder.iter().chain(self.holders.values()).find(other);
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
        let mut facts = vec![];
        if self.sandbox_holder == Some(by) {
            facts.push(InstallEvent::SandboxReleased { run, step });
        }
        for (name, _) in self.holders.iter().filter(|(_, holder)| **holder == by) {
            let name = name.clone();
            facts.push(InstallEvent::ComponentReleased { name, run, step });
        }
        facts
    }

    /// An apply that fails half-way leaves more than nothing: what it may have touched is kept as there
    /// from its first moment on, so that a rollback mends it and a deprovision takes it down.
    pub(super) fn begin(&self, run: RunId, step: StepId, changing: Changing) -> Decision {
        let by = Some(Holder { run, step });
        let holds = match &changing {
            Changing::Sandbox { .. } => self.sandbox_holder == by,
            Changing::Component { name, .. } => self.holders.get(name).copied() == by,
        };
        if !holds {
            return Err(InstallError::NotHolding);
        }
        Ok(vec![match changing {
            Changing::Sandbox { build, config_version } => {
                InstallEvent::SandboxApplyStarted { run, step, build, config_version }
            }
            Changing::Component { name, component, build, config_version, depends_on } => {
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

    /// An apply that never touched what it is about leaves what was there before it began. Only of the
    /// apply that began last: of an earlier one nobody can say.
    pub(super) fn unchanged(&self, run: RunId, step: StepId, resource: Resource) -> Decision {
        let by = Holder { run, step };
        let (holder, begun) = match &resource {
            Resource::Sandbox => {
                (self.sandbox_holder, self.sandbox_before.as_ref().map(|before| before.by))
            }
            Resource::Component(name) => {
                (self.holders.get(name).copied(), self.before.get(name).map(|before| before.by))
            }
        };
        if holder != Some(by) {
            return Err(InstallError::NotHolding);
        }
        if begun != Some(by) {
            return Ok(vec![]);
        }
        Ok(match resource {
            Resource::Sandbox => vec![InstallEvent::SandboxApplyNotRun { run, step }],
            Resource::Component(name) => {
                let component = self.components.get(&name).map(|has| has.component);
                let fact =
                    |component| InstallEvent::ComponentApplyNotRun { name, component, run, step };
                component.map(fact).into_iter().collect()
            }
        })
    }

    /// Only who holds a thing may say that it changed; scripts hold nothing.
    pub(super) fn record(&self, run: RunId, step: StepId, result: StepResult) -> Decision {
        let by = Some(Holder { run, step });
        let holds = match &result {
            StepResult::SandboxProvisioned { .. } | StepResult::SandboxDestroyed => {
                self.sandbox_holder == by
            }
            StepResult::ComponentDeployed { name, .. }
            | StepResult::ComponentDestroyed { name, .. } => self.holders.get(name).copied() == by,
            StepResult::ActionCompleted { .. } => self.runs.contains_key(&run),
        };
        if !holds {
            return Err(InstallError::NotHolding);
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
