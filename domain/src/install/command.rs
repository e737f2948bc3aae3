//! Commands of an install.
use std::collections::{BTreeMap, BTreeSet};

use super::Outputs;
use crate::{
    actor::Actor,
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, RunId, RunnerId, StepId},
    run::{Outcome, RunKind},
    state_version::StateVersion,
};

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum InstallCommand {
    /// Create an install of an app, for one account.
    Create {
        app: AppId,
        /// Name, unique at this vendor.
        name: String,
        /// Pinned config version.
        config_version: u32,
        /// Input values, by input name.
        inputs: BTreeMap<String, String>,
        /// True to apply plans without approval.
        auto_approve: bool,
    },
    /// Set or unset inputs.
    ChangeInputs {
        /// Values to set, by input name.
        set: BTreeMap<String, String>,
        /// Names of the inputs to unset.
        unset: BTreeSet<String>,
        /// Actor that changes the inputs.
        by: Actor,
        /// Reason, if one was given.
        reason: Option<String>,
    },
    /// Pin another config version.
    PinConfig {
        config_version: u32,
        /// Actor that decides.
        by: Actor,
        /// Reason, if one was given.
        reason: Option<String>,
    },
    /// Turn automatic approval of plans on or off.
    SetAutoApprove {
        /// True to apply plans without approval.
        auto_approve: bool,
        /// Actor that decides.
        by: Actor,
        /// Reason, if one was given.
        reason: Option<String>,
    },
    /// Apply the plans of the first provision without an approval.
    AutoApproveFirst {
        /// The principal that decides.
        by: Actor,
    },
    /// Enable or disable a component. The caller checks that the config lets installs do so.
    SetComponentEnabled {
        /// Name of the component.
        name: String,
        /// True to include it in deploys.
        enabled: bool,
        /// Principal that decides.
        by: Actor,
        /// Reason, if one was given.
        reason: Option<String>,
    },
    /// Record the stack outputs that the runner reported.
    ReportStackOutputs {
        /// Runner that reported the outputs.
        runner: RunnerId,
        /// Account, region and all other outputs of the stack.
        outputs: Outputs,
        /// Revoked runner that this one replaces.
        replaces: Option<RunnerId>,
    },
    /// Replace all stack outputs that the vendor has set.
    SetStackOutputs {
        /// Account, region and all other outputs of the stack.
        outputs: Outputs,
        /// Actor that decides.
        by: Actor,
        /// Reason, if one was given.
        reason: Option<String>,
    },
    /// Admit a run, which may then change the install.
    AdmitRun {
        run: RunId,
        /// Operation of the run.
        kind: RunKind,
        /// Names of the components that the run changes. Empty: all components.
        components: BTreeSet<String>,
    },
    /// Record that a run has finished.
    FinishRun { run: RunId, outcome: Outcome },
    /// Deprovision an install that has no resources, without a run.
    Deprovision,
    /// Reserve a resource for a step.
    Reserve {
        resource: Resource,
        /// Run of the step.
        run: RunId,
        step: StepId,
    },
    /// Release all resources that a step holds.
    Release {
        /// Run of the step.
        run: RunId,
        step: StepId,
    },
    /// Record that a step starts to change its resource, which may be partly changed from now on.
    StartApply {
        /// Run of the step.
        run: RunId,
        step: StepId,
        /// Change that starts.
        change: ResourceChange,
    },
    /// Record that an apply did not touch the resource of its step.
    RecordApplyNotRun {
        /// Run of the step.
        run: RunId,
        step: StepId,
        /// Resource that did not change.
        resource: Resource,
    },
    /// Record the state that a step's job reported.
    RecordState {
        /// Name of the component, or `sandbox`.
        name: String,
        /// Run of the step.
        run: RunId,
        step: StepId,
        state: StateVersion,
    },
    /// Accept a state although a newer one or one of another lineage is known.
    AcceptState {
        /// Name of the component, or `sandbox`.
        name: String,
        /// State to accept.
        state: StateVersion,
        /// User who decides.
        by: Actor,
        /// Reason of the user.
        reason: String,
    },
    /// Record the result of a step.
    RecordResult {
        /// Run of the step.
        run: RunId,
        step: StepId,
        result: StepResult,
    },
}

/// Resource that only one step may change at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// The base infrastructure, with everything on it.
    Sandbox,
    /// One component, by name.
    Component(String),
}

/// Change that a step starts, with the values that apply if it succeeds.
#[derive(Debug, Clone, PartialEq)]
pub enum ResourceChange {
    /// The base infrastructure.
    Sandbox {
        /// Build to deploy, or the deployed build that is destroyed.
        build: BuildId,
        /// Config version of the run.
        config_version: u32,
    },
    /// One component.
    Component {
        name: String,
        component: ComponentId,
        /// Build to deploy, or the deployed build that is destroyed.
        build: BuildId,
        /// Config version of the run.
        config_version: u32,
        /// Names of the components that this component depends on.
        depends_on: BTreeSet<String>,
    },
}

/// Result of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepResult {
    SandboxProvisioned {
        /// Deployed build.
        build: BuildId,
        /// Config version of the run.
        config_version: u32,
        /// Digest of everything that determines the result, except outputs of other components.
        fingerprint: Digest,
        /// Outputs that templates may read.
        outputs: Outputs,
    },
    SandboxDestroyed,
    ComponentDeployed {
        /// Name of the component.
        name: String,
        component: ComponentId,
        /// Deployed build.
        build: BuildId,
        /// Config version of the run.
        config_version: u32,
        /// Digest of everything that determines the result, except outputs of other components.
        fingerprint: Digest,
        /// Names of the components that this component depends on.
        depends_on: BTreeSet<String>,
        /// Outputs that templates may read.
        outputs: Outputs,
    },
    ComponentDestroyed {
        /// Name of the component.
        name: String,
        component: ComponentId,
    },
    /// An action succeeded.
    ActionCompleted {
        /// Name of the action.
        name: String,
        /// Outputs that templates may read.
        outputs: Outputs,
    },
}
