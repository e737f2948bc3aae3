//! An install is one copy of an app in one customer's account. It follows a config version, admits
//! runs, gives each step the one thing that the step may change, and knows what is there.
use std::collections::BTreeSet;

use crate::{
    decider::{Decider, Timestamp},
    ids::{RunId, StepId},
    run::RunKind,
};

mod command;
mod error;
mod event;
mod reserve;
mod state;
#[cfg(test)]
mod tests;
pub use command::{InstallCommand, Resource, StepResult};
pub use error::InstallError;
pub use event::{InstallEvent, Outputs};
pub use state::{Admitted, Deployed, Holder, Install, Sandbox, Stack};

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
            // Answered above: the only command that an install need not exist for.
            InstallCommand::Create { .. } => Ok(vec![]),
            InstallCommand::ChangeInputs { mut set, mut unset, by } => {
                set.retain(|name, value| self.inputs.get(name) != Some(value));
                unset.retain(|name| self.inputs.contains_key(name) && !set.contains_key(name));
                let nothing = set.is_empty() && unset.is_empty();
                Ok(one(!nothing, InstallEvent::InputsChanged { set, unset, by }))
            }
            InstallCommand::PinConfig { config_version, by } => Ok(one(
                self.config_version != config_version,
                InstallEvent::ConfigPinned { config_version, by },
            )),
            InstallCommand::SetAutoApprove { auto_approve, by } => Ok(one(
                self.auto_approve != auto_approve,
                InstallEvent::ApprovalChanged { auto_approve, by },
            )),
            InstallCommand::ReportStack { runner, outputs } => match &self.stack {
                Some(known) if known.runner != runner => Err(InstallError::HasARunner),
                Some(known) if known.outputs == outputs => Ok(vec![]),
                Some(_) | None => Ok(vec![InstallEvent::StackReported { runner, outputs }]),
            },
            InstallCommand::AdmitRun { run, kind, components } => self.admit(run, kind, components),
            InstallCommand::CloseRun { run, outcome } => match self.runs.get(&run) {
                None => Ok(vec![]),
                Some(admitted) => {
                    let gone = admitted.kind == RunKind::Deprovision
                        && self.sandbox.is_none()
                        && self.components.is_empty();
                    let mut facts = vec![InstallEvent::RunClosed { run, outcome }];
                    facts.extend(one(gone, InstallEvent::Deprovisioned { run }));
                    Ok(facts)
                }
            },
            InstallCommand::Reserve { resource, run, step } => self.reserve(resource, run, step),
            InstallCommand::Release { run, step } => Ok(self.release(run, step)),
            InstallCommand::Record { run, step, result } => self.record(run, step, result),
        }
    }

    fn evolve(&mut self, event: InstallEvent) {
        self.apply(event);
    }
}

impl Install {
    /// A teardown or deprovision excludes everything, and so does a first provision; others may
    /// overlap when they change different components. An action changes none.
    fn admit(&self, run: RunId, kind: RunKind, components: BTreeSet<String>) -> Decision {
        if self.runs.contains_key(&run) {
            return Ok(vec![]);
        }
        if self.stack.is_none() {
            return Err(InstallError::NoRunner);
        }
        for (other, admitted) in &self.runs {
            let overlap = admitted.components.is_empty()
                || components.is_empty()
                || !admitted.components.is_disjoint(&components);
            let free = match (admitted.kind, kind) {
                (RunKind::Action, RunKind::Action) => true,
                (one, two) if is_exclusive(one) || is_exclusive(two) => false,
                (RunKind::Action, _) | (_, RunKind::Action) => true,
                (_, _) => !overlap,
            };
            if !free {
                return Err(InstallError::Excluded { run: *other, kind: admitted.kind });
            }
        }
        Ok(vec![InstallEvent::RunAdmitted { run, kind, components }])
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

    /// Whether the step holds anything here.
    pub fn is_holding(&self, run: RunId, step: StepId) -> bool {
        let by = Holder { run, step };
        self.sandbox_holder == Some(by) || self.holders.values().any(|holder| *holder == by)
    }
}

fn is_exclusive(kind: RunKind) -> bool {
    match kind {
        RunKind::Provision | RunKind::Reprovision | RunKind::Teardown | RunKind::Deprovision => {
            true
        }
        RunKind::Deploy | RunKind::InputUpdate | RunKind::Rollback | RunKind::Action => false,
    }
}

fn one(wanted: bool, event: InstallEvent) -> Vec<InstallEvent> {
    if wanted { vec![event] } else { vec![] }
}
