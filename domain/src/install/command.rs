use std::collections::{BTreeMap, BTreeSet};

use super::{Outputs, Recovery};
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
    /// Create an install for one customer account.
    Create {
        app: AppId,
        /// Name, unique among the installs that are not deprovisioned.
        name: String,
        config_version: u32,
        /// Input values, by input name.
        inputs: BTreeMap<String, String>,
        /// True to approve all plans automatically.
        auto_approve: bool,
    },
    /// Set or unset inputs.
    ChangeInputs {
        set: BTreeMap<String, String>,
        unset: BTreeSet<String>,
        by: Actor,
        reason: Option<String>,
    },
    /// Pin the config version that deploys use.
    PinConfig {
        config_version: u32,
        by: Actor,
        reason: Option<String>,
    },
    /// Turn automatic approval of plans on or off.
    SetAutoApprove {
        /// True to approve all plans automatically.
        auto_approve: bool,
        by: Actor,
        reason: Option<String>,
    },
    /// Approve the plans of the first provision in advance.
    AutoApproveFirst {
        by: Actor,
    },
    /// Include a component in deploys, or exclude it. The caller checks that the config allows the
    /// choice.
    SetComponentEnabled {
        name: String,
        /// True to include the component in deploys.
        enabled: bool,
        by: Actor,
        reason: Option<String>,
    },
    /// Record the stack outputs that the runner reported.
    ReportStackOutputs {
        runner: RunnerId,
        /// Outputs by name, for example account and region.
        outputs: Outputs,
        /// Revoked runner that the reporting runner replaces.
        replaces: Option<RunnerId>,
    },
    /// Record that a runner on a new host recovered the keys of the install.
    Recover(Recovery),
    /// Replace all stack outputs that the vendor has set.
    SetStackOutputs {
        /// Outputs by name, for example account and region.
        outputs: Outputs,
        by: Actor,
        reason: Option<String>,
    },
    /// Admit a run, so that its steps may reserve resources.
    AdmitRun {
        run: RunId,
        /// Kind of the run, which determines the runs that may be concurrent.
        kind: RunKind,
        /// Names of the components that the run changes. Two runs that change components exclude
        /// each other if they share a name, or if one of the sets is empty.
        components: BTreeSet<String>,
    },
    /// Record that a run has finished.
    FinishRun {
        run: RunId,
        outcome: Outcome,
    },
    /// Mark an install without resources as deprovisioned. An install with resources needs a run.
    Deprovision,
    /// Reserve a resource for a step of an admitted run.
    Reserve {
        resource: Resource,
        run: RunId,
        step: StepId,
    },
    Release {
        run: RunId,
        step: StepId,
    },
    /// Record that a step starts to apply or destroy. From now on, the resource may be partly
    /// changed.
    StartApply {
        run: RunId,
        step: StepId,
        change: ResourceChange,
    },
    /// Record that the apply of a step did not change the resource.
    RecordApplyNotRun {
        run: RunId,
        step: StepId,
        resource: Resource,
    },
    /// Record the state version that the job of a step reported.
    RecordState {
        /// Name of the component, or `sandbox`.
        name: String,
        run: RunId,
        step: StepId,
        state: StateVersion,
    },
    /// Accept a state version, even if a newer state or a state of another lineage is known.
    AcceptState {
        /// Name of the component, or `sandbox`.
        name: String,
        state: StateVersion,
        by: Actor,
        reason: String,
    },
    /// Record that only the host of a step's job has the state that the job reported.
    AwaitState {
        /// Name of the component, or `sandbox`.
        name: String,
        run: RunId,
        step: StepId,
        state: StateVersion,
    },
    /// Record that the server has a state of a component.
    RecordStateArrival {
        /// Name of the component, or `sandbox`.
        name: String,
        state: StateVersion,
        /// True if a user of the customer chose it, so that it may have another lineage.
        is_decided: bool,
    },
    /// Record the successful result of a step.
    RecordResult {
        run: RunId,
        step: StepId,
        result: StepResult,
    },
}

/// Resource that only one step may change at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// The base infrastructure. While a step holds the sandbox, no step can reserve a component.
    Sandbox,
    /// Component by name.
    Component(String),
}

/// Change of a resource that a step starts.
#[derive(Debug, Clone, PartialEq)]
pub enum ResourceChange {
    Sandbox {
        /// Build to deploy. For a destroy, the deployed build.
        build: BuildId,
        config_version: u32,
    },
    Component {
        name: String,
        component: ComponentId,
        /// Build to deploy. For a destroy, the deployed build.
        build: BuildId,
        config_version: u32,
        /// Names of the direct dependencies.
        depends_on: BTreeSet<String>,
    },
}

/// Result of a step that succeeded.
#[derive(Debug, Clone, PartialEq)]
pub enum StepResult {
    SandboxProvisioned {
        build: BuildId,
        config_version: u32,
        /// See [`crate::run::StepSpec::fingerprint`].
        fingerprint: Digest,
        outputs: Outputs,
    },
    SandboxDestroyed,
    ComponentDeployed {
        name: String,
        component: ComponentId,
        build: BuildId,
        config_version: u32,
        /// See [`crate::run::StepSpec::fingerprint`].
        fingerprint: Digest,
        /// Names of the direct dependencies.
        depends_on: BTreeSet<String>,
        outputs: Outputs,
    },
    ComponentDestroyed {
        name: String,
        component: ComponentId,
    },
    ActionCompleted {
        name: String,
        outputs: Outputs,
    },
}
