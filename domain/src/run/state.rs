//! State of a run, folded from its events.
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
    /// Request; none before the run is requested.
    pub request: Option<Request>,
    /// Steps of the run, each after its dependencies.
    pub steps: Vec<Step>,
    /// Cancel request, if there is one.
    pub cancel: Option<Cancel>,
    /// Outcome, once the run has finished.
    pub outcome: Option<Outcome>,
}

/// Request to cancel a run, with its actor and reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Cancel {
    /// Actor of the request.
    pub by: Actor,
    /// Reason that was given.
    pub reason: String,
    /// True to shorten the grace period of running jobs.
    pub force: bool,
}

/// Request for a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Request {
    /// Install to change.
    pub install: InstallId,
    /// Requested operation.
    pub kind: RunKind,
    /// Cause of the request.
    pub cause: Cause,
    /// Actor of the request.
    pub by: Actor,
    /// Config version that the run is planned from.
    pub config_version: u32,
    /// Reason, if one was given.
    pub reason: Option<String>,
}

/// Operation of a run on an install.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// Create sandbox and components.
    Provision,
    /// Plan and apply sandbox and components again.
    Reprovision,
    /// Deploy the components of the pinned config version.
    Deploy,
    /// Deploy the components that changed inputs affect.
    InputUpdate,
    /// Deploy a later config version, or what is missing of the pinned one.
    Upgrade,
    /// Return to an earlier config version.
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

/// Cause of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Cause {
    /// A person or a service requested it through the Control API.
    Requested,
    /// The runner enrolled, so that the install provisions itself.
    RunnerEnrolled,
    /// Retry of the unfinished steps of an earlier run.
    Retry {
        /// Earlier run.
        run: RunId,
    },
}

/// Step of a run as it was planned: a node of the run's graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepSpec {
    /// Id of the step.
    pub step: StepId,
    /// Target of the operation.
    pub target: Target,
    /// Operation on the target.
    pub operation: Operation,
    /// Steps that must succeed before this step starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<StepId>,
    /// Digest of everything that determines the result, except outputs of other components.
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
    /// True if a plan without changes is approved and applied like any other plan.
    #[serde(default)]
    pub applies_noops: bool,
}

impl StepOptions {
    /// Returns true if the config sets no option.
    pub fn is_default(&self) -> bool {
        *self == StepOptions::default()
    }
}

/// Target of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Target {
    /// The base infrastructure.
    Sandbox {
        /// Build of the artifact.
        build: BuildId,
    },
    /// One component.
    Component {
        component: ComponentId,
        /// Name that templates use.
        name: String,
        /// Build of the artifact.
        build: BuildId,
        /// Names of the components that this component depends on.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        depends_on: BTreeSet<String>,
    },
    /// Script of the vendor, which changes no component.
    Action {
        /// The action's name.
        name: String,
    },
}

/// Operation of a step on its target.
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

/// Planned changes in numbers, and the digest that an approval covers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlanFacts {
    /// Plan digest, which the runner signs and an approval covers.
    pub digest: Digest,
    /// Digest of the redacted summary, which is stored as a blob.
    pub summary: Digest,
    /// True if the plan has no changes.
    pub noop: bool,
    /// Number of resources to create.
    pub add: u64,
    /// Number of resources to change.
    pub change: u64,
    /// Number of resources to destroy.
    pub destroy: u64,
}

/// Outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every step succeeded.
    Succeeded,
    /// A step failed.
    Failed,
    /// The run was cancelled on request, and its jobs have ended.
    Cancelled,
    /// A plan was denied.
    Denied,
    /// A plan was not approved in time.
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
    /// Returns the step with this id.
    pub fn step(&self, id: StepId) -> Option<&Step> {
        self.steps.iter().find(|step| step.spec.step == id)
    }

    /// Returns the step that this job works on now.
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
            // The next event records the consequence.
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
            // A retry resets the count of stale plans.
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
