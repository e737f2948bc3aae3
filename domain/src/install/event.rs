//! What can have happened to an install. The names are on disk: add, never rename.
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

/// A fact about an install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InstallEvent {
    /// One copy of an app is to be in one account.
    Created {
        /// Of which app.
        app: AppId,
        /// Its name, unique at this vendor.
        name: String,
        /// The config version it is pinned to.
        config_version: u32,
        /// The values that were given, by input.
        inputs: BTreeMap<String, String>,
        /// Whether plans are applied without a person's word.
        auto_approve: bool,
    },
    /// Inputs were given, or taken back.
    InputsChanged {
        /// The values that were given, by input.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        set: BTreeMap<String, String>,
        /// The inputs that were taken back.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        unset: BTreeSet<String>,
        /// Who did.
        by: Actor,
        /// Why, if they say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The install is to follow another config version.
    ConfigPinned {
        /// Which.
        config_version: u32,
        /// Who decided.
        by: Actor,
        /// Why, if they say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Whether plans are applied without a person's word.
    AutoApproveChanged {
        /// Without a person's word.
        auto_approve: bool,
        /// Who decided.
        by: Actor,
        /// Why, if they say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Plans of the first provision are applied without an approval.
    FirstProvisionAutoApproved {
        /// The principal that decided.
        by: Actor,
    },
    /// Deploys of the install include a component, whatever the config's default.
    ComponentEnabled {
        /// By name.
        name: String,
        /// Who decided.
        by: Actor,
        /// Why, if they say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Deploys of the install leave a component out, and take it down where it is deployed.
    ComponentDisabled {
        /// By name.
        name: String,
        /// Who decided.
        by: Actor,
        /// Why, if they say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The runner that the customer started brought what the stack gave it.
    StackOutputsReported {
        /// Which runner.
        runner: RunnerId,
        /// Account, region and whatever else the stack names.
        outputs: Outputs,
    },
    /// The vendor says what the customer's stack gives out: all of it, instead of what they said before. What the
    /// runner brings has precedence.
    StackOutputsSet {
        /// Account, region and whatever else the stack names.
        outputs: Outputs,
        /// Who says it.
        by: Actor,
        /// Why, if they say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A run may change the install. In the commit of `run.requested`.
    RunAdmitted {
        /// Which run.
        run: RunId,
        /// What it does.
        kind: RunKind,
        /// Names of the components that it changes; none means all.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        components: BTreeSet<String>,
    },
    /// Nothing of the run will happen any more. In the commit of `run.finished`.
    RunFinished {
        /// Which run.
        run: RunId,
        /// How it ended.
        outcome: Outcome,
    },
    /// One step may change a component, and no other step.
    ComponentReserved {
        /// By name.
        name: String,
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
    },
    /// The component is free.
    ComponentReleased {
        /// By name.
        name: String,
        /// Whose step held it.
        run: RunId,
        /// Which step held it.
        step: StepId,
    },
    /// One step may change the sandbox, and no other step anything.
    SandboxReserved {
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
    },
    /// The sandbox is free.
    SandboxReleased {
        /// Whose step held it.
        run: RunId,
        /// Which step held it.
        step: StepId,
    },
    /// An apply of the base infrastructure begins. Until the next fact about it nobody can say what of it
    /// is there. In the commit of `run.apply_started`.
    SandboxApplyStarted {
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
        /// What is brought, or was.
        build: BuildId,
        /// The config version it is changed by.
        config_version: u32,
    },
    /// The apply of the base infrastructure that began last never ran, or found its plan stale before it
    /// touched anything: what was there before it began is there still.
    SandboxApplyNotRun {
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
    },
    /// The base infrastructure is there.
    SandboxProvisioned {
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
        /// What was brought.
        build: BuildId,
        /// The config version it was brought by.
        config_version: u32,
        /// What decided the result.
        fingerprint: Digest,
        /// What templates may read of it.
        outputs: Outputs,
    },
    /// The base infrastructure is gone.
    SandboxDestroyed {
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
    },
    /// An apply of a component begins. Until the next fact about it nobody can say what of it is there.
    /// In the commit of `run.apply_started`.
    ComponentApplyStarted {
        /// By name.
        name: String,
        /// Which.
        component: ComponentId,
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
        /// What is brought, or was.
        build: BuildId,
        /// The config version it is changed by.
        config_version: u32,
        /// Components that it needs.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        depends_on: BTreeSet<String>,
    },
    /// The apply of a component that began last never ran, or found its plan stale before it touched
    /// anything: what was there before it began is there still.
    ComponentApplyNotRun {
        /// By name.
        name: String,
        /// Which.
        component: ComponentId,
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
    },
    /// A component is there.
    ComponentDeployed {
        /// By name.
        name: String,
        /// Which.
        component: ComponentId,
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
        /// What was brought.
        build: BuildId,
        /// The config version it was brought by.
        config_version: u32,
        /// What decided the result.
        fingerprint: Digest,
        /// Components that it needs.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        depends_on: BTreeSet<String>,
        /// What templates may read of it.
        outputs: Outputs,
    },
    /// A component is gone.
    ComponentDestroyed {
        /// By name.
        name: String,
        /// Which.
        component: ComponentId,
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
    },
    /// A script ended well.
    ActionCompleted {
        /// By name.
        name: String,
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
        /// What templates may read of it.
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
    /// A user decided that this state of a component is right, although a newer one or one of another lineage is known.
    StateAccepted {
        /// Name of the component, or `sandbox`.
        name: String,
        /// The state.
        state: StateVersion,
        /// User who decided.
        by: Actor,
        /// Their reason.
        reason: String,
    },
    /// Nothing of the app is in the account any more.
    Deprovisioned {
        /// By which run; none when nothing was left to take down.
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
