//! State of a step of a run.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Operation, PlanFacts, StepSpec};
use crate::{decider::Timestamp, ids::JobId};

/// Step of a run with its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Step {
    /// Step as it was planned.
    pub spec: StepSpec,
    /// Lifecycle state.
    pub state: StepState,
    /// Number of approved plans that became stale since the last retry of the step.
    pub voided: u32,
    /// Number of automatic retries since a user retried the failed step.
    pub retries: u32,
    /// All jobs of the step, in order.
    pub jobs: Vec<JobId>,
}

/// Lifecycle state of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum StepState {
    /// The step waits for other steps or for its resource.
    Waiting,
    /// A job plans the step.
    Planning { job: JobId },
    /// The plan needs approval.
    AwaitingApproval {
        /// Plan to approve.
        plan: PlanFacts,
        /// Time at which the request for approval expires.
        #[bincode(with_serde)]
        expires_at: Timestamp,
    },
    /// The plan is approved, and the apply is not queued yet.
    Approved {
        /// Approved plan.
        plan: PlanFacts,
    },
    /// A job applies the plan.
    Applying {
        job: JobId,
        /// Plan that the job applies.
        plan: PlanFacts,
    },
    /// A job runs the script.
    Executing { job: JobId },
    /// The job failed, and the step starts again automatically.
    RetryScheduled {
        /// Earliest start.
        #[bincode(with_serde)]
        not_before: Timestamp,
    },
    Succeeded {
        /// True if the plan had no changes.
        noop: bool,
    },
    Failed {
        /// Kind of failure.
        reason: StepFailure,
        /// Explanation for users.
        detail: String,
    },
    /// The step is skipped in this run.
    Skipped {
        /// Reason for which the step is skipped.
        reason: Skip,
    },
}

/// Kind of failure of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepFailure {
    /// The job failed.
    JobFailed,
    /// The job was cancelled, and its runner confirmed.
    JobCancelled,
    /// The outcome of the job is unknown, and giving up was safe.
    JobLost,
    /// The artifact could not be built.
    BuildFailed,
    /// The manifest cannot be rendered from the templates and inputs.
    RenderFailed,
    /// The plan became stale after its approval too often.
    PlanUnstable,
}

/// Reason that a step is skipped in this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    /// Its plan was denied.
    Denied,
    /// Its plan was not approved in time.
    Expired,
    /// The run was cancelled.
    Cancelled,
    /// A dependency did not succeed.
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
    /// Returns true if the state of the step is final.
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

    /// Returns the job that works on the step now.
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
