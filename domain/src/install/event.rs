//! Events of an install. Their names and payloads are stored: from the first release on, add and never rename.
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    actor::Actor,
    decider::Event,
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, RunId, RunnerId, StepId},
    outputs::Outputs,
    run::{Outcome, RunKind},
    state_version::StateVersion,
};

/// An event of an install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InstallEvent {
    /// An install of an app was created.
    Created {
        /// The app.
        app: AppId,
        /// Name of the install, unique.
        name: String,
        /// Config version that the install is pinned to.
        config_version: u32,
        /// Values by input name.
        inputs: BTreeMap<String, String>,
        /// Whether plans are applied without approval.
        auto_approve: bool,
    },
    /// Input values were set or removed.
    InputsChanged {
        /// Values by input name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        set: BTreeMap<String, String>,
        /// Names of the inputs that were removed.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        unset: BTreeSet<String>,
        /// Principal that changed them.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The install was pinned to another config version.
    ConfigPinned {
        /// The config version.
        config_version: u32,
        /// Principal that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Auto-approve was set or cleared.
    AutoApproveChanged {
        /// Whether plans are applied without approval.
        auto_approve: bool,
        /// Principal that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Plans of the first provision are applied without an approval.
    FirstProvisionAutoApproved {
        /// The principal that decided.
        by: Actor,
    },
    /// Deploys of the install include a component, whatever the default of the config.
    ComponentEnabled {
        /// Name of the component.
        name: String,
        /// Principal that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Deploys of the install exclude a component and destroy it if it is deployed.
    ComponentDisabled {
        /// Name of the component.
        name: String,
        /// Principal that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The runner reported the outputs of the customer's stack.
    StackOutputsReported {
        /// The runner.
        runner: RunnerId,
        /// Outputs of the stack: account, region and others.
        outputs: Outputs,
    },
    /// A user of the vendor set the outputs of the customer's stack, which replace those set before. Outputs that the
    /// runner reported have precedence.
    StackOutputsSet {
        /// Outputs of the stack: account, region and others.
        outputs: Outputs,
        /// Principal that set them.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A run may change the install. In the commit of `run.requested`.
    RunAdmitted {
        /// The run.
        run: RunId,
        /// Kind of the run.
        kind: RunKind,
        /// Names of the components that it changes; empty means all.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        components: BTreeSet<String>,
    },
    /// The run finished. In the commit of `run.finished`.
    RunFinished {
        /// The run.
        run: RunId,
        /// Outcome of the run.
        outcome: Outcome,
    },
    /// A step reserved a component: no other step may change it.
    ComponentReserved {
        /// Name of the component.
        name: String,
        /// Run of the step.
        run: RunId,
        /// The step.
        step: StepId,
    },
    /// The reservation of a component was released.
    ComponentReleased {
        /// Name of the component.
        name: String,
        /// Run of the step.
        run: RunId,
        /// The step that held it.
        step: StepId,
    },
    /// A step reserved the sandbox: no other step may change anything.
    SandboxReserved {
        /// Run of the step.
        run: RunId,
        /// The step.
        step: StepId,
    },
    /// The reservation of the sandbox was released.
    SandboxReleased {
        /// Run of the step.
        run: RunId,
        /// The step that held it.
        step: StepId,
    },
    /// An apply of the sandbox started: until its next event, its actual state is unknown. In the commit of
    /// `run.apply_started`.
    SandboxApplyStarted {
        /// Run of the step.
        run: RunId,
        /// The step.
        step: StepId,
        /// Build that is applied.
        build: BuildId,
        /// Config version that the step applies.
        config_version: u32,
    },
    /// The last apply of the sandbox did not run, or found its plan stale before it changed anything: the state is
    /// the one from before it started.
    SandboxApplyNotRun {
        /// Run of the step.
        run: RunId,
        /// The step.
        step: StepId,
    },
    /// The sandbox was provisioned.
    SandboxProvisioned {
        /// Run of the step.
        run: RunId,
        /// The step.
        step: StepId,
        /// Build that was applied.
        build: BuildId,
        /// Config version that the step applied.
        config_version: u32,
        /// Digest of everything that determines the result, except outputs of other components.
        fingerprint: Digest,
        /// Outputs that templates can read.
        outputs: Outputs,
    },
    /// The sandbox was destroyed.
    SandboxDestroyed {
        /// Run of the step.
        run: RunId,
        /// The step.
        step: StepId,
    },
    /// An apply of a component started: until its next event, its actual state is unknown. In the commit of
    /// `run.apply_started`.
    ComponentApplyStarted {
        /// Name of the component.
        name: String,
        /// The component.
        component: ComponentId,
        /// Run of the step.
        run: RunId,
        /// The step.
        step: StepId,
        /// Build that is applied.
        build: BuildId,
        /// Config version that the step applies.
        config_version: u32,
        /// Names of the components that it depends on.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        depends_on: BTreeSet<String>,
    },
    /// The last apply of a component did not run, or found its plan stale before it changed anything: the state is
    /// the one from before it started.
    ComponentApplyNotRun {
        /// Name of the component.
        name: String,
        /// The component.
        component: ComponentId,
        /// Run of the step.
        run: RunId,
        /// The step.
        step: StepId,
    },
    /// A component was deployed.
    ComponentDeployed {
        /// Name of the component.
        name: String,
        /// The component.
        component: ComponentId,
        /// Run of the step.
        run: RunId,
        /// The step.
        step: StepId,
        /// Build that was applied.
        build: BuildId,
        /// Config version that the step applied.
        config_version: u32,
        /// Digest of everything that determines the result, except outputs of other components.
        fingerprint: Digest,
        /// Names of the components that it depends on.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        depends_on: BTreeSet<String>,
        /// Outputs that templates can read.
        outputs: Outputs,
    },
    /// A component was destroyed.
    ComponentDestroyed {
        /// Name of the component.
        name: String,
        /// The component.
        component: ComponentId,
        /// Run of the step.
        run: RunId,
        /// The step.
        step: StepId,
    },
    /// An action succeeded.
    ActionCompleted {
        /// Name of the action.
        name: String,
        /// Run of the step.
        run: RunId,
        /// The step.
        step: StepId,
        /// Outputs that templates can read.
        outputs: Outputs,
    },
    /// A plan or an apply reported a newer state of a component.
    StateRecorded {
        /// Name of the component, or `sandbox`.
        name: String,
        /// Run of the step that reported it.
        run: RunId,
        /// Step that reported it.
        step: StepId,
        /// The state.
        state: StateVersion,
    },
    /// A user accepted a state of a component although a newer one or one of another lineage is known.
    StateAccepted {
        /// Name of the component, or `sandbox`.
        name: String,
        /// The state.
        state: StateVersion,
        /// User that decided.
        by: Actor,
        /// Reason.
        reason: String,
    },
    /// Nothing of the app is left in the account.
    Deprovisioned {
        /// The run that destroyed it; absent if nothing was deployed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
    },
}

impl Event for InstallEvent {
    fn name(&self) -> &'static str {
        match self {
            InstallEvent::Created { .. } => "install.created",
            InstallEvent::InputsChanged { .. } => "install.inputs_changed",
            InstallEvent::ConfigPinned { .. } => "install.config_pinned",
            InstallEvent::AutoApproveChanged { .. } => "install.auto_approve_changed",
            InstallEvent::FirstProvisionAutoApproved { .. } => {
                "install.first_provision_auto_approved"
            }
            InstallEvent::ComponentEnabled { .. } => "install.component_enabled",
            InstallEvent::ComponentDisabled { .. } => "install.component_disabled",
            InstallEvent::StackOutputsReported { .. } => "install.stack_outputs_reported",
            InstallEvent::StackOutputsSet { .. } => "install.stack_outputs_set",
            InstallEvent::RunAdmitted { .. } => "install.run_admitted",
            InstallEvent::RunFinished { .. } => "install.run_finished",
            InstallEvent::ComponentReserved { .. } => "install.component_reserved",
            InstallEvent::ComponentReleased { .. } => "install.component_released",
            InstallEvent::SandboxReserved { .. } => "install.sandbox_reserved",
            InstallEvent::SandboxReleased { .. } => "install.sandbox_released",
            InstallEvent::SandboxApplyStarted { .. } => "install.sandbox_apply_started",
            InstallEvent::SandboxApplyNotRun { .. } => "install.sandbox_apply_not_run",
            InstallEvent::SandboxProvisioned { .. } => "install.sandbox_provisioned",
            InstallEvent::SandboxDestroyed { .. } => "install.sandbox_destroyed",
            InstallEvent::ComponentApplyStarted { .. } => "install.component_apply_started",
            InstallEvent::ComponentApplyNotRun { .. } => "install.component_apply_not_run",
            InstallEvent::ComponentDeployed { .. } => "install.component_deployed",
            InstallEvent::ComponentDestroyed { .. } => "install.component_destroyed",
            InstallEvent::ActionCompleted { .. } => "install.action_completed",
            InstallEvent::StateRecorded { .. } => "install.state_recorded",
            InstallEvent::StateAccepted { .. } => "install.state_accepted",
            InstallEvent::Deprovisioned { .. } => "install.deprovisioned",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
