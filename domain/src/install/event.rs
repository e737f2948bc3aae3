//! Events of an install. The log stores their names: add events, never rename them.
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::recovery::Recovery;
use crate::{
    actor::Actor,
    decider::Event,
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, RunId, RunnerId, StepId},
    outputs::Outputs,
    run::{Outcome, RunKind},
    state_version::StateVersion,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InstallEvent {
    /// An install was created for one customer account.
    Created {
        app: AppId,
        /// Name, unique among the installs that are not deprovisioned.
        name: String,
        /// Config version that deploys use.
        config_version: u32,
        /// Input values, by input name.
        inputs: BTreeMap<String, String>,
        /// True if all plans are approved automatically.
        auto_approve: bool,
    },
    /// Input values changed. A later run deploys the affected components.
    InputsChanged {
        /// New values, by input name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        set: BTreeMap<String, String>,
        /// Names of inputs that have no value any more.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        unset: BTreeSet<String>,
        /// Actor of the change.
        by: Actor,
        /// Reason that the actor gave. Absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Deploys use this config version from now on.
    ConfigPinned {
        /// Config version that deploys use.
        config_version: u32,
        /// Actor of the change.
        by: Actor,
        /// Reason that the actor gave. Absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Automatic approval of plans was turned on or off. Turning automatic approval off also
    /// revokes the advance approval of the first provision.
    AutoApproveChanged {
        /// True if all plans are approved automatically.
        auto_approve: bool,
        /// Actor of the change.
        by: Actor,
        /// Reason that the actor gave. Absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The plans of the first provision are approved in advance. This does not approve the plans of
    /// later runs.
    FirstProvisionAutoApproved {
        /// Principal that approved the plans.
        by: Actor,
    },
    /// Deploys of the install include a component, regardless of the config's default.
    ComponentEnabled {
        name: String,
        /// Actor of the change.
        by: Actor,
        /// Reason that the actor gave. Absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Deploys of the install exclude a component. The next deploy destroys the component if it is
    /// deployed.
    ComponentDisabled {
        name: String,
        /// Actor of the change.
        by: Actor,
        /// Reason that the actor gave. Absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The enrolled runner reported outputs of the customer's stack. These outputs replace all
    /// earlier outputs from a runner.
    StackOutputsReported {
        runner: RunnerId,
        /// Outputs by name, for example account and region.
        outputs: Outputs,
    },
    /// The vendor set stack outputs, which replace all earlier outputs from the vendor. Outputs
    /// from the runner take precedence.
    StackOutputsSet {
        /// Outputs by name, for example account and region.
        outputs: Outputs,
        /// Actor of the change.
        by: Actor,
        /// Reason that the actor gave. Absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A run was admitted, so its steps may reserve resources. Committed with `run.requested`.
    RunAdmitted {
        run: RunId,
        /// Kind of the run.
        kind: RunKind,
        /// Names of the components that the run changes. Two runs that change components exclude
        /// each other if they share a name, or if one of the sets is empty.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        components: BTreeSet<String>,
    },
    /// A run finished and can no longer change the install. Committed with `run.finished`.
    RunFinished { run: RunId, outcome: Outcome },
    /// A step reserved a component. Until the release, no other step may change the component.
    ComponentReserved { name: String, run: RunId, step: StepId },
    /// A step released a component, so other steps may reserve it.
    ComponentReleased { name: String, run: RunId, step: StepId },
    /// A step reserved the sandbox. Until the release, no other step may change the sandbox or a
    /// component.
    SandboxReserved { run: RunId, step: StepId },
    /// A step released the sandbox, so other steps may reserve the sandbox or components.
    SandboxReleased { run: RunId, step: StepId },
    /// An apply or destroy of the sandbox started. The sandbox may be partly changed until an event
    /// records that it was provisioned or destroyed, or that the apply did not run. Committed with
    /// `run.apply_started`.
    SandboxApplyStarted {
        run: RunId,
        step: StepId,
        /// Build to deploy. For a destroy, the deployed build.
        build: BuildId,
        /// Config version of the run.
        config_version: u32,
    },
    /// The last apply of the sandbox changed nothing: no process ran, or the runner refused the job
    /// or found its plan stale. The sandbox is as before that apply.
    SandboxApplyNotRun { run: RunId, step: StepId },
    /// The sandbox has this build and these outputs: its apply succeeded, or its plan had no
    /// changes.
    SandboxProvisioned {
        run: RunId,
        step: StepId,
        build: BuildId,
        /// Config version of the run.
        config_version: u32,
        /// Digest of the module, inputs, environment variables and stack outputs that determine the
        /// result. Outputs of the sandbox and of components are not included.
        fingerprint: Digest,
        /// Outputs that templates may read.
        outputs: Outputs,
    },
    /// The install has no sandbox any more: its destroy succeeded, or the destroy plan had no
    /// changes.
    SandboxDestroyed { run: RunId, step: StepId },
    /// An apply or destroy of a component started. The component may be partly changed until an
    /// event records that it was deployed or destroyed, or that the apply did not run. Committed
    /// with `run.apply_started`.
    ComponentApplyStarted {
        name: String,
        component: ComponentId,
        run: RunId,
        step: StepId,
        /// Build to deploy. For a destroy, the deployed build.
        build: BuildId,
        /// Config version of the run.
        config_version: u32,
        /// Names of the direct dependencies.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        depends_on: BTreeSet<String>,
    },
    /// The last apply of a component changed nothing: no process ran, or the runner refused the job
    /// or found its plan stale. The component is as before that apply.
    ComponentApplyNotRun { name: String, component: ComponentId, run: RunId, step: StepId },
    /// The component has this build and these outputs: its apply succeeded, or its plan had no
    /// changes.
    ComponentDeployed {
        name: String,
        component: ComponentId,
        run: RunId,
        step: StepId,
        build: BuildId,
        /// Config version of the run.
        config_version: u32,
        /// Digest of the module, inputs, environment variables and stack outputs that determine the
        /// result. Outputs of the sandbox and of components are not included.
        fingerprint: Digest,
        /// Names of the direct dependencies.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        depends_on: BTreeSet<String>,
        /// Outputs that templates may read.
        outputs: Outputs,
    },
    /// The component is not deployed any more: its destroy succeeded, or the destroy plan had no
    /// changes.
    ComponentDestroyed { name: String, component: ComponentId, run: RunId, step: StepId },
    /// The script of an action succeeded. The event contains its outputs.
    ActionCompleted {
        name: String,
        run: RunId,
        step: StepId,
        /// Outputs that templates may read.
        outputs: Outputs,
    },
    /// A plan or an apply reported a state version that is newer than the known version, has
    /// another lineage, or is the first.
    StateRecorded {
        /// Name of the component, or `sandbox`.
        name: String,
        run: RunId,
        step: StepId,
        state: StateVersion,
    },
    /// A user accepted a state version of a component, even if a newer state or a state of another
    /// lineage was known.
    StateAccepted {
        /// Name of the component, or `sandbox`.
        name: String,
        state: StateVersion,
        /// User that accepted the state.
        by: Actor,
        /// Reason that the user gave.
        reason: String,
    },
    /// A job ended with a state version that only its host has. No step may begin to change the
    /// component until the state arrives, or a user decides.
    StateAwaited {
        /// Name of the component, or `sandbox`.
        name: String,
        run: RunId,
        step: StepId,
        state: StateVersion,
    },
    /// The server has the awaited state of a component, a later one, or one that a user of the
    /// customer chose.
    StateArrived {
        /// Name of the component, or `sandbox`.
        name: String,
        state: StateVersion,
    },
    /// A runner on a new host recovered the keys of the install. It replaces the former runner, which
    /// is revoked in the same commit.
    Recovered(Recovery),
    /// The account has no resources of the install any more. The install admits no further runs.
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
            InstallEvent::StateAwaited { .. } => "install.state_awaited",
            InstallEvent::StateArrived { .. } => "install.state_arrived",
            InstallEvent::Recovered(_) => "install.recovered",
            InstallEvent::Deprovisioned { .. } => "install.deprovisioned",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
