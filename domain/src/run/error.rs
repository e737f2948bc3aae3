use super::Outcome;
use crate::{decider::Timestamp, digest::Digest};

/// Reason to reject a run command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunError {
    #[error("run does not exist")]
    NotFound,
    #[error("run was already requested with other values")]
    AlreadyRequested,
    #[error("run has no steps")]
    NoSteps,
    /// Each step must follow the steps that it depends on, and each id must be unique.
    #[error("steps are not sorted by dependency")]
    StepsOutOfOrder,
    #[error("run has no such step")]
    NoSuchStep,
    #[error("a step that this one needs has not succeeded")]
    NotReady,
    /// The state of the step does not allow the command.
    #[error("step is not in a state that allows this")]
    NotWaitingForThat,
    #[error("this job does not work on any step of the run")]
    NotItsJob,
    #[error("no plan of this step is waiting for approval")]
    NothingToApprove,
    /// The decision covers another plan than the one that waits for approval.
    #[error("another plan waits for approval: {waiting}; review it and decide again")]
    AnotherPlan {
        /// Digest of the plan that waits for approval.
        waiting: Digest,
    },
    #[error("approval expired at {at}: retry the run to plan again")]
    ApprovalExpired {
        /// Time from which the aggregate rejects an approval.
        at: Timestamp,
    },
    /// Decisions and cancel requests need a reason, because the log is an audit trail.
    #[error("reason is empty: give a reason")]
    NoReason,
    #[error("only the first provision of an install can be approved in advance")]
    NotAProvision,
    #[error("only a failed step can be retried")]
    NotFailed,
    /// A run that is being cancelled starts no jobs.
    #[error("run is being cancelled")]
    Cancelling,
    #[error("run has already ended: {outcome}")]
    AlreadyEnded { outcome: Outcome },
}
