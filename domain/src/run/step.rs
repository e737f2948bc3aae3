use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Operation, StepPlan, StepSpec};
use crate::{decider::Timestamp, ids::JobId};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Step {
    pub spec: StepSpec,
    pub state: StepState,
    /// Number of approved plans that became stale since the last retry of the step.
    pub voided: u32,
    /// Number of automatic retries. A user's retry of the failed step resets the number.
    pub retries: u32,
    /// All jobs of the step, in order.
    pub jobs: Vec<JobId>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum StepState {
    /// The step waits for its dependencies, its build or its resource.
    Waiting,
    /// The plan job is queued or running.
    Planning { job: JobId },
    /// The plan waits for approval by a principal.
    AwaitingApproval {
        plan: StepPlan,
        /// Time from which the aggregate rejects an approval.
        #[bincode(with_serde)]
        expires_at: Timestamp,
    },
    /// The plan is approved, but its apply job is not queued yet.
    Approved { plan: StepPlan },
    /// The apply job is queued or running.
    Applying { job: JobId, plan: StepPlan },
    /// The job of the action is queued or running.
    Executing { job: JobId },
    /// A job failed, and the step starts again automatically after a back-off.
    RetryScheduled {
        /// Earliest start of the retry.
        #[bincode(with_serde)]
        not_before: Timestamp,
    },
    Succeeded {
        /// True if the plan had no changes.
        noop: bool,
    },
    Failed {
        reason: StepFailure,
        /// Explanation of the failure for users.
        detail: String,
    },
    /// The step does not continue in this run.
    Skipped { reason: Skip },
}

/// Reason for which a step failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepFailure {
    /// The job failed. `detail` is the message of the job's failure.
    JobFailed,
    /// The job was cancelled on request.
    JobCancelled,
    /// The server gave up on the job. The loss is safe: the work is pure, or no process started.
    JobLost,
    /// The build of the artifact failed.
    BuildFailed,
    /// The server cannot render the manifest, for example because of invalid inputs.
    RenderFailed,
    /// Three approved plans became stale before their apply.
    PlanUnstable,
}

/// Reason for which a step was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    /// An actor denied the plan of the step.
    Denied,
    /// No actor approved the plan of the step in time.
    Expired,
    /// The run was cancelled while no job worked on the step.
    Cancelled,
    /// A direct or indirect dependency did not succeed.
    Blocked,
    /// The preflight of the run failed while no job worked on the step.
    PreflightFailed,
}

impl StepFailure {
    /// Returns a short description for users, without the detail.
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
                Operation::Check => "cannot check",
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
