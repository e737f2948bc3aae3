//! Why a run says no, in the words of the business.
use super::Outcome;
use crate::{decider::Timestamp, digest::Digest};

/// A refusal.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunError {
    /// No such run.
    #[error("run does not exist")]
    NotFound,
    /// The run was requested before, as something else.
    #[error("run is already requested, as something else")]
    AlreadyRequested,
    /// There is nothing to do.
    #[error("run has no steps")]
    NoSteps,
    /// Steps that need each other, or steps that are not there.
    #[error("steps are not in an order in which each comes after the steps it needs")]
    StepsOutOfOrder,
    /// No such step.
    #[error("run has no such step")]
    NoSuchStep,
    /// A step that it needs has not succeeded.
    #[error("a step that this one needs has not succeeded")]
    NotReady,
    /// The step is somewhere else.
    #[error("step is not waiting for that")]
    NotWaitingForThat,
    /// Another job works on the step.
    #[error("this job does not work on any step of the run")]
    NotItsJob,
    /// No plan awaits a word.
    #[error("no plan of this step is waiting for approval")]
    NothingToApprove,
    /// The word is about another plan.
    #[error("the plan that is waiting for approval is {waiting}, not the one you looked at")]
    AnotherPlan {
        /// The plan that is waiting.
        waiting: Digest,
    },
    /// Nobody approved in time.
    #[error("the plan could be approved until {at}; retry the run to plan again")]
    ApprovalExpired {
        /// The end of it.
        at: Timestamp,
    },
    /// A word needs a reason.
    #[error("say why: the reason is empty")]
    NoReason,
    /// Only failed steps are retried.
    #[error(
        "only the first provision of an install is approved in advance, not a run of another kind"
    )]
    NotAProvision,
    /// Only what failed.
    #[error("only a failed step can be retried")]
    NotFailed,
    /// The run is to end.
    #[error("run is being cancelled")]
    Cancelling,
    /// Too late.
    #[error("run has already ended: {outcome}")]
    AlreadyEnded {
        /// How.
        outcome: Outcome,
    },
}
