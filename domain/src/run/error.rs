use super::{Outcome, RunKind};
use crate::{decider::Timestamp, digest::Digest};

/// Reason to reject a run command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunError {
    #[error("run does not exist")]
    NotFound,
    #[error("cannot request the run: the id belongs to a run with other values; use a new id")]
    AlreadyRequested,
    #[error("cannot request the run: it has no steps")]
    NoSteps,
    /// Each step must follow the steps that it depends on, and each id must be unique.
    #[error("cannot request the run: its steps are not sorted by dependency")]
    StepsOutOfOrder,
    #[error("cannot find the step: the run has no such step; `stead runs show` lists the steps")]
    NoSuchStep,
    #[error("cannot start the step: a dependency has not succeeded")]
    NotReady,
    #[error(
        "cannot handle the command: the state of the preflight does not allow it; `stead runs show` shows the state"
    )]
    WrongPreflightState,
    /// A run makes no change before its preflight has passed.
    #[error(
        "cannot change anything: the preflight of the run has not passed; `stead runs show` shows its state"
    )]
    PreflightNotPassed,
    /// A run with `plan_all` makes all plans that it can before its first change.
    #[error(
        "cannot change anything: the run first plans all steps that it can; `stead runs show` lists them"
    )]
    PlansMissing,
    #[error("cannot request the run: {kind} has no plans to approve; request it without plan_all")]
    NothingToPlan { kind: RunKind },
    /// A run whose preflight failed starts no jobs.
    #[error(
        "cannot change the run: its preflight failed; fix the failed checks, then retry the run"
    )]
    PreflightFailed,
    #[error(
        "cannot handle the command: the state of the step does not allow it; `stead runs show` shows the state"
    )]
    WrongStepState,
    #[error("cannot change the step: this job does not work on it")]
    WrongJob,
    #[error(
        "cannot decide: no plan of this step waits for approval; `stead runs show` lists the steps"
    )]
    NothingToApprove,
    /// The decision does not cover the plan that waits for approval.
    #[error(
        "cannot decide on the plan: another plan waits for approval, {waiting}; review it and decide again"
    )]
    AnotherPlan {
        /// Digest of the plan that waits for approval.
        waiting: Digest,
    },
    #[error("cannot approve the plan: the approval expired at {at}; retry the run to plan again")]
    ApprovalExpired {
        /// Time from which the aggregate rejects an approval.
        at: Timestamp,
    },
    /// Decisions and cancel requests need a reason, because the log is an audit trail.
    #[error("cannot change the run: the reason is empty; give a reason")]
    NoReason,
    #[error(
        "cannot approve the plan: only the first provision of an install can be approved in advance"
    )]
    NotAProvision,
    #[error("cannot retry the step: it has not failed")]
    NotFailed,
    /// A run that is being cancelled starts no jobs.
    #[error("cannot change the run: it is being cancelled; retry the run after its end")]
    Cancelling,
    #[error("cannot change the run: it has already ended: {outcome}")]
    AlreadyEnded { outcome: Outcome },
}
