//! What we know of a run, and how a fact changes it.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{RunEvent, Step, StepState};
use crate::{
    actor::Actor,
    digest::Digest,
    ids::{BuildId, ComponentId, InstallId, JobId, RunId, StepId},
};

/// One orchestrated operation on an install.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Run {
    /// What was asked; nothing before the run is requested.
    pub request: Option<Request>,
    /// In an order in which each step comes after the steps it needs.
    pub steps: Vec<Step>,
    /// Who wants the run to end, and why.
    pub cancel: Option<Cancel>,
    /// How it ended.
    pub outcome: Option<Outcome>,
}

/// That a run is to end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Cancel {
    /// Who asked.
    pub by: Actor,
    /// Why.
    pub reason: String,
    /// Without waiting for the grace period of what works.
    pub force: bool,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Request {
    /// Whose install is to be changed.
    pub install: InstallId,
    /// What is to be done.
    pub kind: RunKind,
    /// Why.
    pub cause: Cause,
    /// Who asked.
    pub by: Actor,
    /// Which published config the run is planned from.
    pub config_version: u32,
    /// In the words of who asked.
    pub reason: Option<String>,
}

/// What a run does to an install.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// Bring sandbox and components into being.
    Provision,
    /// Plan and apply sandbox and components again.
    Reprovision,
    /// Bring components to the pinned config.
    Deploy,
    /// Bring to the install what its changed inputs reach.
    InputUpdate,
    /// Move to a later config version, or bring what is missing of the pinned one.
    Upgrade,
    /// Go back to an earlier config version.
    Rollback,
    /// Destroy the components.
    Teardown,
    /// Destroy the components and the sandbox.
    Deprovision,
    /// Run one action.
    Action,
}

impl fmt::Display for RunKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RunKind::Provision => "provision",
            RunKind::Reprovision => "reprovision",
            RunKind::Deploy => "deploy",
            RunKind::InputUpdate => "input update",
            RunKind::Upgrade => "upgrade",
            RunKind::Rollback => "rollback",
            RunKind::Teardown => "teardown",
            RunKind::Deprovision => "deprovision",
            RunKind::Action => "action",
        })
    }
}

/// Why a run was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Cause {
    /// A person or a service asked through the Control API.
    Requested,
    /// The runner enrolled, so the install sets itself up.
    RunnerEnrolled,
    /// The steps that an earlier run left undone.
    Retry {
        /// The run that is tried again.
        run: RunId,
    },
}

/// One node of a run's graph, as it was planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepSpec {
    /// Its id.
    pub step: StepId,
    /// What it changes.
    pub target: Target,
    /// What it does to it.
    pub operation: Operation,
    /// Steps that must have succeeded before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<StepId>,
    /// What is brought: everything that decides the result, but outputs of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
    /// Settings of the config for this step.
    #[serde(default, skip_serializing_if = "StepOptions::is_default")]
    pub options: StepOptions,
}

/// Settings of the config for one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepOptions {
    /// Number of automatic retries after failed jobs.
    #[serde(default)]
    pub max_auto_retries: u32,
    /// Whether a plan without changes is approved and applied like any other plan.
    #[serde(default)]
    pub applies_noops: bool,
}

impl StepOptions {
    /// Whether the config sets nothing.
    pub fn is_default(&self) -> bool {
        *self == StepOptions::default()
    }
}

/// What a step changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Target {
    /// The base infrastructure.
    Sandbox {
        /// Where its artifact comes from.
        build: BuildId,
    },
    /// One component.
    Component {
        /// Which.
        component: ComponentId,
        /// By the name that templates use.
        name: String,
        /// Where its artifact comes from.
        build: BuildId,
        /// Names of the components that it needs.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        depends_on: BTreeSet<String>,
    },
    /// Nothing of ours: a vendor's script.
    Action {
        /// The action's name.
        name: String,
    },
}

/// What a step does to its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Plan, approve and apply.
    Apply,
    /// Plan the destruction, approve and destroy.
    Destroy,
    /// Run the script.
    Execute,
}

/// What an apply would change, in numbers, and the digest that an approval speaks of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlanFacts {
    /// The plan digest (design: signed by the runner, approved by people).
    pub digest: Digest,
    /// The redacted summary, a blob.
    pub summary: Digest,
    /// Whether nothing would change.
    pub noop: bool,
    /// Resources to be made.
    pub add: u64,
    /// Resources to be changed.
    pub change: u64,
    /// Resources to be destroyed.
    pub destroy: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every step did what it was for.
    Succeeded,
    /// A step failed.
    Failed,
    /// Somebody asked, and what ran has ended.
    Cancelled,
    /// Somebody said no to a plan.
    Denied,
    /// Nobody answered in time.
    Expired,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
            Outcome::Denied => "denied",
            Outcome::Expired => "expired",
        })
    }
}

impl Run {
    /// The step of this id.
    pub fn step(&self, id: StepId) -> Option<&Step> {
        self.steps.iter().find(|step| step.spec.step == id)
    }

    /// The step that this job works on now.
    pub fn step_of(&self, job: JobId) -> Option<&Step> {
        self.steps.iter().find(|step| step.state.job() == Some(job))
    }

    pub(super) fn apply(&mut self, event: RunEvent) {
        match event {
            RunEvent::Requested { install, kind, cause, by, config_version, reason } => {
                let request = Request { install, kind, cause, by, config_version, reason };
                self.request = Some(request);
            }
            RunEvent::Planned { steps, .. } => {
                let step = |spec| Step {
                    spec,
                    state: StepState::Waiting,
                    voided: 0,
                    retries: 0,
                    jobs: vec![],
                };
                self.steps = steps.into_iter().map(step).collect();
            }
            RunEvent::StepStarted { step, job } => self.set(step, |at| {
                at.jobs.push(job);
                at.state = match at.spec.operation {
                    Operation::Apply | Operation::Destroy => StepState::Planning { job },
                    Operation::Execute => StepState::Executing { job },
                };
            }),
            RunEvent::PlanProduced { step, plan, .. } => {
                self.set(step, |at| at.state = StepState::Approved { plan });
            }
            RunEvent::ApprovalRequested { step, expires_at, .. } => self.set(step, |at| {
                if let StepState::Approved { plan } = at.state.clone() {
                    at.state = StepState::AwaitingApproval { plan, expires_at };
                }
            }),
            RunEvent::Approved { step, .. } => self.set(step, |at| {
                if let StepState::AwaitingApproval { plan, .. } = at.state.clone() {
                    at.state = StepState::Approved { plan };
                }
            }),
            // What follows from a no, or from silence, is the next event.
            RunEvent::Denied { .. } | RunEvent::ApprovalExpired { .. } => {}
            RunEvent::PlanInvalidated { step, .. } => self.set(step, |at| {
                at.voided += 1;
                at.state = StepState::Waiting;
            }),
            RunEvent::ApplyStarted { step, job } => self.set(step, |at| {
                at.jobs.push(job);
                if let StepState::Approved { plan } = at.state.clone() {
                    at.state = StepState::Applying { job, plan };
                }
            }),
            RunEvent::StepSucceeded { step, noop } => {
                self.set(step, |at| at.state = StepState::Succeeded { noop });
            }
            RunEvent::StepFailed { step, reason, detail } => {
                self.set(step, |at| at.state = StepState::Failed { reason, detail });
            }
            RunEvent::StepRetryScheduled { step, attempt, not_before, .. } => {
                self.set(step, |at| {
                    at.retries = attempt;
                    at.state = StepState::RetryScheduled { not_before };
                });
            }
            RunEvent::StepSkipped { step, reason } => {
                self.set(step, |at| at.state = StepState::Skipped { reason });
            }
            // Whoever asks again has looked: the plans that went stale before no longer count.
            RunEvent::StepRetried { step, .. } => self.set(step, |at| {
                at.voided = 0;
                if matches!(at.state, StepState::Failed { .. }) {
                    at.retries = 0;
                }
                at.state = StepState::Waiting;
            }),
            RunEvent::CancelRequested { by, reason, force } => {
                self.cancel = Some(Cancel { by, reason, force });
            }
            RunEvent::Finished { outcome } => self.outcome = Some(outcome),
        }
    }

    fn set(&mut self, id: StepId, change: impl FnOnce(&mut Step)) {
        if let Some(step) = self.steps.iter_mut().find(|step| step.spec.step == id) {
            change(step);
        }
    }

    pub(super) fn states(&self) -> BTreeMap<StepId, &StepState> {
        self.steps.iter().map(|step| (step.spec.step, &step.state)).collect()
    }
}
