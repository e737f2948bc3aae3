//! Versions of a component before and after a run.
use crate::{
    ids::RunId,
    install::{Deployed, Install, InstallEvent, Sandbox},
};

use super::{ComponentHistory, Version};

/// Returns the component that an event changes, or `Some(None)` for the sandbox.
pub(super) fn changed_component(domain_event: &InstallEvent) -> Option<Option<&str>> {
    match domain_event {
        InstallEvent::SandboxApplyStarted { .. }
        | InstallEvent::SandboxApplyNotRun { .. }
        | InstallEvent::SandboxProvisioned { .. }
        | InstallEvent::SandboxDestroyed { .. } => Some(None),
        InstallEvent::ComponentApplyStarted { name, .. }
        | InstallEvent::ComponentApplyNotRun { name, .. }
        | InstallEvent::ComponentDeployed { name, .. }
        | InstallEvent::ComponentDestroyed { name, .. } => Some(Some(name)),
        InstallEvent::Created { .. }
        | InstallEvent::InputsChanged { .. }
        | InstallEvent::ConfigPinned { .. }
        | InstallEvent::AutoApproveChanged { .. }
        | InstallEvent::FirstProvisionAutoApproved { .. }
        | InstallEvent::ComponentDisabled { .. }
        | InstallEvent::ComponentEnabled { .. }
        | InstallEvent::StackOutputsReported { .. }
        | InstallEvent::StackOutputsSet { .. }
        | InstallEvent::RunAdmitted { .. }
        | InstallEvent::RunFinished { .. }
        | InstallEvent::ComponentReserved { .. }
        | InstallEvent::ComponentReleased { .. }
        | InstallEvent::SandboxReserved { .. }
        | InstallEvent::SandboxReleased { .. }
        | InstallEvent::ActionCompleted { .. }
        | InstallEvent::StateRecorded { .. }
        | InstallEvent::StateAccepted { .. }
        | InstallEvent::StateAwaited { .. }
        | InstallEvent::StateArrived { .. }
        | InstallEvent::Recovered(_)
        | InstallEvent::Deprovisioned { .. } => None,
    }
}

pub(super) struct ComponentChange {
    before: Option<Version>,
    after: Option<Version>,
    incomplete: bool,
    /// True if an apply of the run has started and its end is not recorded yet.
    apply_open: bool,
    /// True if an apply of the run took effect, completely or in part.
    took_effect: bool,
}

impl ComponentChange {
    /// Creates the change from the install before the run's next event. If an apply of the run is
    /// open, `before` is the version before that apply.
    pub(super) fn completed(install: &Install, name: Option<&str>, run: RunId) -> ComponentChange {
        let (before, apply_open) = match name {
            Some(name) => {
                match install.before_apply.get(name).filter(|before| before.by.run == run) {
                    Some(before) => (before.previous.as_ref().map(deployed), true),
                    None => (install.components.get(name).map(deployed), false),
                }
            }
            None => {
                match install.sandbox_before_apply.as_ref().filter(|before| before.by.run == run) {
                    Some(before) => (before.previous.as_ref().map(sandbox), true),
                    None => (install.sandbox.as_ref().map(sandbox), false),
                }
            }
        };
        let after = before.clone();
        ComponentChange { before, after, incomplete: false, apply_open, took_effect: false }
    }

    /// Updates the change after an event of the run.
    pub(super) fn with(
        self,
        install: &Install,
        name: Option<&str>,
        domain_event: &InstallEvent,
    ) -> ComponentChange {
        let (after, incomplete) = match name {
            Some(name) => {
                let component = install.components.get(name);
                let open = component.is_some_and(|deployed| deployed.fingerprint.is_none());
                (component.map(deployed), open)
            }
            None => {
                let current = install.sandbox.as_ref();
                let open = current.is_some_and(|sandbox| sandbox.fingerprint.is_none());
                (current.map(sandbox), open)
            }
        };
        let started = matches!(
            domain_event,
            InstallEvent::ComponentApplyStarted { .. } | InstallEvent::SandboxApplyStarted { .. }
        );
        let not_run = matches!(
            domain_event,
            InstallEvent::ComponentApplyNotRun { .. } | InstallEvent::SandboxApplyNotRun { .. }
        );
        // A second start means that the apply before it failed, and it may have changed resources.
        let failed_before = started && self.apply_open;
        let completed = !started && !not_run;
        let took_effect = self.took_effect || failed_before || completed;
        ComponentChange { before: self.before, after, incomplete, apply_open: started, took_effect }
    }

    /// Returns the history of the component. `None` if no apply of the run took effect.
    pub(super) fn finish(self, name: String) -> Option<ComponentHistory> {
        let ComponentChange { before, after, incomplete, apply_open, took_effect } = self;
        (took_effect || apply_open).then_some(ComponentHistory { name, before, after, incomplete })
    }
}

fn deployed(component: &Deployed) -> Version {
    Version { config_version: component.config_version, build: component.build }
}

fn sandbox(sandbox: &Sandbox) -> Version {
    Version { config_version: sandbox.config_version, build: sandbox.build }
}
