//! State of a run, folded from its events.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Preflight, RunEvent, Skip, Step, StepState};
use crate::{
    actor::Actor,
    digest::Digest,
    ids::{BuildId, ComponentId, InstallId, JobId, RunId, StepId},
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Run {
    /// Request for the run. `None` before it is recorded.
    pub request: Option<Request>,
    /// Checks of the requirements before the first change.
    pub preflight: Preflight,
    /// Steps of the run, each after its dependencies.
    pub steps: Vec<Step>,
    /// True after the first apply or action of the run has started.
    #[serde(default)]
    pub has_changed: bool,
    /// Last cancel request.
    pub cancel: Option<Cancel>,
    /// Outcome of the run. `None` before the run finishes.
    pub outcome: Option<Outcome>,
}

/// Request to cancel a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Cancel {
    pub by: Actor,
    pub reason: String,
    /// True to shorten the grace period between SIGTERM and SIGKILL of running jobs.
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Request {
    pub install: InstallId,
    pub kind: RunKind,
    pub cause: Cause,
    pub by: Actor,
    /// Config version from which the steps are planned.
    pub config_version: u32,
    pub reason: Option<String>,
    /// True if the run plans all that it can before its first change.
    #[serde(default)]
    pub plan_all: bool,
}

/// Operation of a run on an install.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// Create the sandbox and all components.
    Provision,
    /// Plan and apply the sandbox and all components again, changed or not.
    Reprovision,
    /// Deploy some components of the pinned config version, or all.
    Deploy,
    /// Deploy the components that changed inputs or stack outputs affect.
    InputUpdate,
    /// Move to a later config version, or deploy missing changes of the current version.
    Upgrade,
    /// Move to an earlier config version.
    Rollback,
    /// Destroy all components. The sandbox stays.
    Teardown,
    /// Destroy all components and the sandbox.
    Deprovision,
    /// Execute one action.
    Action,
    /// Compare the sandbox and all components with the config, without changes.
    Drift,
}

impl RunKind {
    /// Returns true if a run of this kind can make its plans before its first change.
    pub fn can_plan_all(self) -> bool {
        match self {
            RunKind::Provision
            | RunKind::Reprovision
            | RunKind::Deploy
            | RunKind::InputUpdate
            | RunKind::Upgrade
            | RunKind::Rollback
            | RunKind::Teardown
            | RunKind::Deprovision => true,
            RunKind::Action | RunKind::Drift => false,
        }
    }
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
            RunKind::Drift => "drift",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Cause {
    /// Request of a principal through the Control API.
    Requested,
    /// Enrolment of the first runner, which starts the first provision.
    RunnerEnrolled,
    /// Retry of the unfinished work of an earlier run.
    Retry { run: RunId },
}

/// Planned step of a run: one node of the run's graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepSpec {
    pub step: StepId,
    pub target: Target,
    pub operation: Operation,
    /// Ids of the steps that must succeed before this step starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<StepId>,
    /// Digest of the module, inputs, environment variables and stack outputs that determine the
    /// result. Outputs of the sandbox and of components are not included. Absent for destroys and
    /// actions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
    /// Settings from the config. Absent if the config sets none.
    #[serde(default, skip_serializing_if = "StepOptions::is_default")]
    pub options: StepOptions,
}

/// Settings of a step from the config.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepOptions {
    /// Maximum number of automatic retries after failed jobs.
    #[serde(default)]
    pub max_auto_retries: u32,
    /// True to approve and apply plans without changes, too.
    #[serde(default)]
    pub applies_noops: bool,
}

impl StepOptions {
    /// Returns true if the config sets no option.
    pub fn is_default(&self) -> bool {
        *self == StepOptions::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Target {
    /// The base infrastructure of the install.
    Sandbox {
        /// Build to deploy. For a destroy, the deployed build.
        build: BuildId,
    },
    Component {
        component: ComponentId,
        /// Name of the component in the config and in templates.
        name: String,
        /// Build to deploy. For a destroy, the deployed build.
        build: BuildId,
        /// Names of the direct dependencies.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        depends_on: BTreeSet<String>,
    },
    /// Script of the vendor, which changes no component.
    Action {
        /// Name of the action in the config.
        name: String,
    },
}

/// Operation of a step on its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Plan, wait for approval, and apply.
    Apply,
    /// Plan the destruction, wait for approval, and destroy.
    Destroy,
    /// Execute the script, without plan and approval.
    Execute,
    /// Plan, and never apply: the changes of the plan are the drift.
    Check,
}

/// Plan of a step, without the planned values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepPlan {
    /// Plan digest, which the runner signs and an approval covers.
    pub digest: Digest,
    /// Digest of the redacted summary, which is stored as a blob.
    pub summary: Digest,
    /// Salted digest of the details, which are stored encrypted. Absent without details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Digest>,
    /// True if the plan has no changes.
    pub noop: bool,
    /// Number of resources to create.
    pub add: u64,
    /// Number of resources to change.
    pub change: u64,
    /// Number of resources to destroy.
    pub destroy: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every step succeeded.
    Succeeded,
    /// A step failed for a reason other than the cancellation of its job.
    Failed,
    /// The run or one of its jobs was cancelled on request, and all jobs have ended.
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
    pub fn step(&self, id: StepId) -> Option<&Step> {
        self.steps.iter().find(|step| step.spec.step == id)
    }

    /// Returns the step that the job works on now.
    pub fn step_of(&self, job: JobId) -> Option<&Step> {
        self.steps.iter().find(|step| step.state.job() == Some(job))
    }

    /// Returns the request to stop the jobs of this run: that of an actor, or because the preflight
    /// failed.
    pub fn stop_request(&self) -> Option<Cancel> {
        let failed = || Cancel {
            by: Actor::Policy("preflight_failed".into()),
            reason: "the preflight of the run failed".into(),
            force: false,
        };
        self.cancel.clone().or_else(|| self.preflight.has_failed().then(failed))
    }

    /// Returns the reason for which steps without a job do not continue.
    pub(super) fn stop_reason(&self) -> Option<Skip> {
        match (&self.cancel, self.preflight.has_failed()) {
            (Some(_), _) => Some(Skip::Cancelled),
            (None, true) => Some(Skip::PreflightFailed),
            (None, false) => None,
        }
    }

    pub(super) fn apply(&mut self, event: RunEvent) {
        match event {
            RunEvent::Requested { install, kind, cause, by, config_version, reason, plan_all } => {
                self.request =
                    Some(Request { install, kind, cause, by, config_version, reason, plan_all });
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
                self.preflight = Preflight::of(self.steps.iter());
            }
            RunEvent::PreflightStarted { job } => self.preflight = Preflight::Running { job },
            RunEvent::PreflightPassed { job, .. } => self.preflight = Preflight::Passed { job },
            RunEvent::PreflightFailed { job, reason, .. } => {
                self.preflight = Preflight::Failed { job, reason };
            }
            RunEvent::StepStarted { step, job } => {
                self.set(step, |at| {
                    at.jobs.push(job);
                    at.state = match at.spec.operation {
                        Operation::Apply | Operation::Destroy | Operation::Check => {
                            StepState::Planning { job }
                        }
                        Operation::Execute => StepState::Executing { job },
                    };
                });
                let is_action = |at: &Step| at.spec.operation == Operation::Execute;
                self.has_changed |= self.step(step).is_some_and(is_action);
            }
            RunEvent::PlanProduced { step, plan, .. } => self.set(step, |at| {
                at.state = match at.spec.operation {
                    Operation::Apply | Operation::Destroy | Operation::Execute => {
                        StepState::Approved { plan }
                    }
                    // The next event records the result. Nothing can approve or apply the plan.
                    Operation::Check => return,
                };
            }),
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
            RunEvent::ApplyStarted { step, job } => {
                self.set(step, |at| {
                    at.jobs.push(job);
                    if let StepState::Approved { plan } = at.state.clone() {
                        at.state = StepState::Applying { job, plan };
                    }
                });
                self.has_changed = true;
            }
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
