//! Reasons to reject a run command.
use super::Outcome;
use crate::{decider::Timestamp, digest::Digest};

/// Reason to reject a command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunError {
    /// No run has this id.
    #[error("run does not exist")]
    NotFound,
    /// The id belongs to a run with another request.
    #[error("run was already requested with other values")]
    AlreadyRequested,
    /// A run needs at least one step.
    #[error("run has no steps")]
    NoSteps,
    /// Steps depend on each other in a cycle, or on steps that do not exist.
    #[error("steps are not sorted by dependency")]
    StepsOutOfOrder,
    /// No step of the run has this id.
    #[error("run has no such step")]
    NoSuchStep,
    /// A dependency of the step has not succeeded.
    #[error("a step that this one needs has not succeeded")]
    NotReady,
    /// The command does not apply to the state of the step.
    #[error("step is not in a state that allows this")]
    NotWaitingForThat,
    /// Another job works on the step.
    #[error("this job does not work on any step of the run")]
    NotItsJob,
    /// No plan waits for approval.
    #[error("no plan of this step is waiting for approval")]
    NothingToApprove,
    /// The decision covers another plan.
    #[error("another plan waits for approval: {waiting}; review it and decide again")]
    AnotherPlan {
        /// Digest of the plan that waits.
        waiting: Digest,
    },
    /// The request for approval has expired.
    #[error("approval expired at {at}: retry the run to plan again")]
    ApprovalExpired {
        /// Time limit.
        at: Timestamp,
    },
    /// A decision needs a reason.
    #[error("reason is empty: give a reason")]
    NoReason,
    /// Only a first provision can be approved in advance.
    #[error("only the first provision of an install can be approved in advance")]
    NotAProvision,
    /// Only failed steps are retried.
    #[error("only a failed step can be retried")]
    NotFailed,
    /// A cancelled run starts nothing.
    #[error("run is being cancelled")]
    Cancelling,
    /// A finished run does not change.
    #[error("run has already ended: {outcome}")]
    AlreadyEnded { outcome: Outcome },
}
