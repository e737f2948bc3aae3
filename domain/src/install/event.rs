//! Events of an install. The log stores their names: add events, never rename them.
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

/// Event of an install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InstallEvent {
    /// An install of an app was created, for one account.
    Created {
        /// App of the install.
        app: AppId,
        /// Name, unique at this vendor.
        name: String,
        /// Pinned config version.
        config_version: u32,
        /// Input values, by input name.
        inputs: BTreeMap<String, String>,
        /// True if plans are applied without approval.
        auto_approve: bool,
    },
    /// Inputs were set or unset.
    InputsChanged {
        /// Values that were set, by input name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        set: BTreeMap<String, String>,
        /// Names of the inputs that were unset.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        unset: BTreeSet<String>,
        /// Actor that changed the inputs.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Another config version was pinned.
    ConfigPinned {
        /// Pinned config version.
        config_version: u32,
        /// Actor that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Automatic approval of plans was turned on or off.
    AutoApproveChanged {
        /// True if plans are applied without approval.
        auto_approve: bool,
        /// Actor that decided.
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
    /// Deploys of the install include a component, regardless of the config's default.
    ComponentEnabled {
        /// Name of the component.
        name: String,
        /// Actor that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Deploys of the install exclude a component, and destroy it if it is deployed.
    ComponentDisabled {
        /// Name of the component.
        name: String,
        /// Actor that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The customer's runner reported the outputs of the stack.
    StackOutputsReported {
        /// Runner that reported the outputs.
        runner: RunnerId,
        /// Account, region and all other outputs of the stack.
        outputs: Outputs,
    },
    /// The vendor set stack outputs, which replace all earlier ones of the vendor. Outputs that the
    /// runner reports take precedence.
    StackOutputsSet {
        /// Account, region and all other outputs of the stack.
        outputs: Outputs,
        /// Actor that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A run may change the install. Committed with `run.requested`.
    RunAdmitted {
        /// Admitted run.
        run: RunId,
        /// Operation of the run.
        kind: RunKind,
        /// Names of the components that the run changes. Empty: all components.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        components: BTreeSet<String>,
    },
    /// A run has finished and no longer changes the install. Committed with `run.finished`.
    RunFinished {
        /// Finished run.
        run: RunId,
        /// Outcome of the run.
        outcome: Outcome,
    },
    /// A step reserved a component, which no other step may change.
    ComponentReserved {
        /// Name of the component.
        name: String,
        /// Run of the step.
        run: RunId,
        /// Id of the step.
        step: StepId,
    },
    /// A step released a component.
    ComponentReleased {
        /// Name of the component.
        name: String,
        /// Run of the step.
        run: RunId,
        /// Step that held the component.
        step: StepId,
    },
    /// A step reserved the sandbox, and no other step may change anything.
    SandboxReserved {
        /// Run of the step.
        run: RunId,
        /// Id of the step.
        step: StepId,
    },
    /// A step released the sandbox.
    SandboxReleased {
        /// Run of the step.
        run: RunId,
        /// Step that held the sandbox.
        step: StepId,
    },
    /// An apply of the sandbox started. Its actual state is unknown until the next event about it.
    /// Committed with `run.apply_started`.
    SandboxApplyStarted {
        /// Run of the step.
        run: RunId,
        /// Id of the step.
        step: StepId,
        /// Build to deploy, or the deployed build that is destroyed.
        build: BuildId,
        /// Config version of the run.
        config_version: u32,
    },
    /// The last apply of the sandbox did not run, or its plan was stale before it changed anything.
    /// The actual state is the one before that apply.
    SandboxApplyNotRun {
        /// Run of the step.
        run: RunId,
        /// Id of the step.
        step: StepId,
    },
    /// The apply of the sandbox succeeded. The event has the deployed build and its outputs.
    SandboxProvisioned {
        /// Run of the step.
        run: RunId,
        /// Id of the step.
        step: StepId,
        /// Deployed build.
        build: BuildId,
        /// Config version of the run.
        config_version: u32,
        /// Digest of everything that determines the result, except outputs of other components.
        fingerprint: Digest,
        /// Outputs that templates may read.
        outputs: Outputs,
    },
    /// The destroy of the sandbox succeeded, so the install has no sandbox any more.
    SandboxDestroyed {
        /// Run of the step.
        run: RunId,
        /// Id of the step.
        step: StepId,
    },
    /// An apply of a component started. Its actual state is unknown until the next event about it.
    /// Committed with `run.apply_started`.
    ComponentApplyStarted {
        /// Name of the component.
        name: String,
        /// Id of the component.
        component: ComponentId,
        /// Run of the step.
        run: RunId,
        /// Id of the step.
        step: StepId,
        /// Build to deploy, or the deployed build that is destroyed.
        build: BuildId,
        /// Config version of the run.
        config_version: u32,
        /// Names of the components that this component depends on.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        depends_on: BTreeSet<String>,
    },
    /// The last apply of a component did not run, or its plan was stale before it changed anything.
    /// The actual state is the one before that apply.
    ComponentApplyNotRun {
        /// Name of the component.
        name: String,
        /// Id of the component.
        component: ComponentId,
        /// Run of the step.
        run: RunId,
        /// Id of the step.
        step: StepId,
    },
    /// The apply of a component succeeded. The event has the deployed build and its outputs.
    ComponentDeployed {
        /// Name of the component.
        name: String,
        /// Id of the component.
        component: ComponentId,
        /// Run of the step.
        run: RunId,
        /// Id of the step.
        step: StepId,
        /// Deployed build.
        build: BuildId,
        /// Config version of the run.
        config_version: u32,
        /// Digest of everything that determines the result, except outputs of other components.
        fingerprint: Digest,
        /// Names of the components that this component depends on.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        depends_on: BTreeSet<String>,
        /// Outputs that templates may read.
        outputs: Outputs,
    },
    /// The destroy of a component succeeded, so the install does not have the component any more.
    ComponentDestroyed {
        /// Name of the component.
        name: String,
        /// Id of the component.
        component: ComponentId,
        /// Run of the step.
        run: RunId,
        /// Id of the step.
        step: StepId,
    },
    /// An action succeeded.
    ActionCompleted {
        /// Name of the action.
        name: String,
        /// Run of the step.
        run: RunId,
        /// Id of the step.
        step: StepId,
        /// Outputs that templates may read.
        outputs: Outputs,
    },
    /// A plan or an apply reported a newer state of a component.
    StateRecorded {
        /// Name of the component, or `sandbox`.
        name: String,
        /// Run of the step that reported the state.
        run: RunId,
        /// Step that reported the state.
        step: StepId,
        /// Lineage and serial of the state.
        state: StateVersion,
    },
    /// A user accepted this state of a component, although a newer one or one of another lineage is
    /// known.
    StateAccepted {
        /// Name of the component, or `sandbox`.
        name: String,
        /// Accepted state.
        state: StateVersion,
        /// User that decided.
        by: Actor,
        /// Reason of the user.
        reason: String,
    },
    /// The account has no resources of the install any more.
    Deprovisioned {
        /// Run that destroyed the resources. Absent if the install had no resources.
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
