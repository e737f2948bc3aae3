//! What can be asked of an install.
use std::collections::{BTreeMap, BTreeSet};

use super::Outputs;
use crate::{
    actor::Actor,
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, RunId, RunnerId, StepId},
    run::{Outcome, RunKind},
    state_version::StateVersion,
};

/// A request that may be refused.
#[derive(Debug, Clone, PartialEq)]
pub enum InstallCommand {
    /// One copy of an app is to be in one account.
    Create {
        /// Of which app.
        app: AppId,
        /// Its name, unique at this vendor.
        name: String,
        /// The config version it follows.
        config_version: u32,
        /// The values that were given, by input.
        inputs: BTreeMap<String, String>,
        /// Whether plans are applied without a person's word.
        auto_approve: bool,
    },
    /// Give inputs, or take them back.
    ChangeInputs {
        /// The values that are given, by input.
        set: BTreeMap<String, String>,
        /// The inputs that are taken back.
        unset: BTreeSet<String>,
        /// Who does.
        by: Actor,
        /// Why, if they say.
        reason: Option<String>,
    },
    /// Follow another config version.
    PinConfig {
        /// Which.
        config_version: u32,
        /// Who decides.
        by: Actor,
        /// Why, if they say.
        reason: Option<String>,
    },
    /// Say whether plans are applied without a person's word.
    SetAutoApprove {
        /// Without a person's word.
        auto_approve: bool,
        /// Who decides.
        by: Actor,
        /// Why, if they say.
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
        /// Whether deploys include it.
        enabled: bool,
        /// Principal that decides.
        by: Actor,
        /// Reason, if one was given.
        reason: Option<String>,
    },
    /// Bring what the customer's stack gave the runner.
    ReportStackOutputs {
        /// Which runner.
        runner: RunnerId,
        /// Account, region and whatever else the stack names.
        outputs: Outputs,
        /// The runner whose place it takes: one that is never heard again.
        replaces: Option<RunnerId>,
    },
    /// Say what the customer's stack gives out, instead of what was said before.
    SetStackOutputs {
        /// Account, region and whatever else the stack names.
        outputs: Outputs,
        /// Who says it.
        by: Actor,
        /// Why, if they say.
        reason: Option<String>,
    },
    /// Let a run change the install.
    AdmitRun {
        /// Which run.
        run: RunId,
        /// What it does.
        kind: RunKind,
        /// Names of the components that it changes; none means all.
        components: BTreeSet<String>,
    },
    /// Nothing of the run will happen any more.
    FinishRun {
        /// Which run.
        run: RunId,
        /// How it ended.
        outcome: Outcome,
    },
    /// Say that nothing of it is left, where no run has to take anything down.
    Deprovision,
    /// Hold a resource for a step.
    Reserve {
        /// What.
        resource: Resource,
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
    },
    /// Let go of what a step holds.
    Release {
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
    },
    /// Take in that a step begins to change what it holds: from here on it may be half done.
    StartApply {
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
        /// What it changes.
        changing: Changing,
    },
    /// Take in that an apply of what a step holds never touched it.
    RecordApplyNotRun {
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
        /// What it did not change.
        resource: Resource,
    },
    /// Record the state that a step's job reported.
    RecordState {
        /// Name of the component, or `sandbox`.
        name: String,
        /// Run of the step.
        run: RunId,
        /// The step.
        step: StepId,
        /// The state.
        state: StateVersion,
    },
    /// Accept a state although a newer one or one of another lineage is known.
    AcceptState {
        /// Name of the component, or `sandbox`.
        name: String,
        /// The state.
        state: StateVersion,
        /// User who decides.
        by: Actor,
        /// Their reason.
        reason: String,
    },
    /// Take in what a step brought about.
    Record {
        /// Whose step.
        run: RunId,
        /// Which step.
        step: StepId,
        /// What it brought about.
        result: StepResult,
    },
}

/// What only one step at a time may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// The base infrastructure, and everything on it.
    Sandbox,
    /// One component, by name.
    Component(String),
}

/// What a step is about to change, as it will be if the change succeeds.
#[derive(Debug, Clone, PartialEq)]
pub enum Changing {
    /// The base infrastructure.
    Sandbox {
        /// What is brought, or was.
        build: BuildId,
        /// The config version it is changed by.
        config_version: u32,
    },
    /// One component.
    Component {
        /// By name.
        name: String,
        /// Which.
        component: ComponentId,
        /// What is brought, or was.
        build: BuildId,
        /// The config version it is changed by.
        config_version: u32,
        /// Components that it needs.
        depends_on: BTreeSet<String>,
    },
}

/// What a step brought about.
#[derive(Debug, Clone, PartialEq)]
pub enum StepResult {
    /// The base infrastructure is there.
    SandboxProvisioned {
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
    SandboxDestroyed,
    /// A component is there.
    ComponentDeployed {
        /// By name.
        name: String,
        /// Which.
        component: ComponentId,
        /// What was brought.
        build: BuildId,
        /// The config version it was brought by.
        config_version: u32,
        /// What decided the result.
        fingerprint: Digest,
        /// Components that it needs.
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
    },
    /// A script ended well.
    ActionCompleted {
        /// By name.
        name: String,
        /// What templates may read of it.
        outputs: Outputs,
    },
}
