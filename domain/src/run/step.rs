//! Where a step of a run is, and how it got there.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Operation, PlanFacts, StepSpec};
use crate::{decider::Timestamp, ids::JobId};

/// One node of a run's graph, and where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Step {
    /// As it was planned.
    pub spec: StepSpec,
    /// Where it is.
    pub state: StepState,
    /// Plans that could no longer be applied.
    pub voided: u32,
    /// Automatic retries since a user asked for the step.
    pub retries: u32,
    /// Every job that was made for it, in order.
    pub jobs: Vec<JobId>,
}

/// Where a step is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum StepState {
    /// For other steps, or for what it must hold.
    Waiting,
    /// A job plans it.
    Planning {
        /// Which job.
        job: JobId,
    },
    /// A person must say yes.
    AwaitingApproval {
        /// To this plan.
        plan: PlanFacts,
        /// Before this moment.
        #[bincode(with_serde)]
        expires_at: Timestamp,
    },
    /// Somebody said yes; the apply is not queued yet.
    Approved {
        /// To this plan.
        plan: PlanFacts,
    },
    /// A job applies the plan.
    Applying {
        /// Which job.
        job: JobId,
        /// Exactly this plan.
        plan: PlanFacts,
    },
    /// A job runs the script.
    Executing {
        /// Which job.
        job: JobId,
    },
    /// Its job failed, and the step starts again by itself.
    RetryScheduled {
        /// Earliest start.
        #[bincode(with_serde)]
        not_before: Timestamp,
    },
    /// It did what it was for.
    Succeeded {
        /// Whether there was nothing to change.
        noop: bool,
    },
    /// It did not.
    Failed {
        /// What kind of failure.
        reason: StepFailure,
        /// In words.
        detail: String,
    },
    /// It will not be done in this run.
    Skipped {
        /// Why not.
        reason: Skip,
    },
}

/// What kind of failure ended a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepFailure {
    /// The work said so.
    JobFailed,
    /// The work was cancelled, and its runner confirmed.
    JobCancelled,
    /// Nobody can say what became of the work, and it was safe to give up.
    JobLost,
    /// The artifact could not be built.
    BuildFailed,
    /// The manifest cannot be rendered from the templates and inputs.
    RenderFailed,
    /// The plan changed under the approval, again and again.
    PlanUnstable,
}

/// Why a step is not done in this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    /// Its plan was denied.
    Denied,
    /// Nobody approved in time.
    Expired,
    /// The run was cancelled.
    Cancelled,
    /// A step that it needs did not succeed.
    Blocked,
}

impl StepFailure {
    /// Text for users.
    pub fn text(self, operation: Operation) -> &'static str {
        match self {
            StepFailure::JobFailed => "job failed",
            StepFailure::JobCancelled => "job cancelled",
            StepFailure::JobLost => "job lost",
            StepFailure::BuildFailed => "build failed",
            StepFailure::RenderFailed => match operation {
                Operation::Apply => "cannot deploy",
                Operation::Destroy => "cannot tear down",
                Operation::Execute => "cannot run the action",
            },
            StepFailure::PlanUnstable => "plan does not become stable",
        }
    }
}

impl StepState {
    /// Whether nothing of this step will happen any more.
    pub fn is_over(&self) -> bool {
        match self {
            StepState::Succeeded { .. } | StepState::Failed { .. } | StepState::Skipped { .. } => {
                true
            }
            StepState::Waiting
            | StepState::Planning { .. }
            | StepState::AwaitingApproval { .. }
            | StepState::Approved { .. }
            | StepState::Applying { .. }
            | StepState::Executing { .. }
            | StepState::RetryScheduled { .. } => false,
        }
    }

    /// The job that works on the step now.
    pub fn job(&self) -> Option<JobId> {
        match self {
            StepState::Planning { job }
            | StepState::Applying { job, .. }
            | StepState::Executing { job } => Some(*job),
            StepState::Waiting
            | StepState::AwaitingApproval { .. }
            | StepState::Approved { .. }
            | StepState::RetryScheduled { .. }
            | StepState::Succeeded { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => None,
        }
    }
}
