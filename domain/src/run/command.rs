//! Commands of a run, in the order of its lifecycle.
use super::{PlanFacts, Request, StepFailure, StepSpec};
use crate::{
    actor::Actor,
    decider::Timestamp,
    digest::Digest,
    ids::{JobId, StepId},
};

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum RunCommand {
    /// Request an operation with its planned steps.
    Request {
        /// Requested operation.
        request: Request,
        /// Steps of the run, each after its dependencies.
        steps: Vec<StepSpec>,
        /// Log position that the planner had read up to.
        position: u64,
    },
    /// Queue the first job of a step.
    StartStep {
        step: StepId,
        /// First job of the step.
        job: JobId,
    },
    /// Record the result of a plan job.
    RecordPlan {
        /// Plan job.
        job: JobId,
        /// Planned changes.
        plan: PlanFacts,
        /// Approval that the plan needs.
        approval: Approval,
    },
    Approve(PlanDecision),
    Deny(PlanDecision),
    /// Expire a plan that was not approved in time.
    ExpireApproval {
        step: StepId,
        /// Digest of the plan.
        digest: Digest,
    },
    /// Queue the apply of an approved plan.
    StartApply {
        step: StepId,
        /// Apply job.
        job: JobId,
    },
    /// Invalidate an approved plan that can no longer be applied.
    InvalidatePlan {
        /// Apply job whose plan is stale.
        job: JobId,
        /// Change that made the plan stale.
        reason: String,
    },
    /// Record that the job of a step succeeded.
    CompleteStep {
        /// Job that succeeded.
        job: JobId,
    },
    /// Record that a step failed or could not start.
    FailStep {
        step: StepId,
        /// Job that failed; none if the step could not start.
        job: Option<JobId>,
        /// Kind of failure.
        reason: StepFailure,
        /// Explanation for users.
        detail: String,
        /// True if the result is known and another attempt may succeed.
        may_retry: bool,
    },
    /// Start a step again after its back-off.
    StartRetry {
        step: StepId,
        /// Number of the retry.
        attempt: u32,
    },
    /// Retry a failed step of a run in progress.
    RetryStep {
        step: StepId,
        /// Actor of the request.
        by: Actor,
        /// Reason, if one was given.
        reason: Option<String>,
    },
    /// Cancel the run.
    RequestCancel {
        /// Actor of the request.
        by: Actor,
        reason: String,
        /// True to shorten the grace period of running jobs.
        force: bool,
    },
}

/// Approval that a plan with changes needs.
#[derive(Debug, Clone, PartialEq)]
pub enum Approval {
    /// A principal must approve the plan in time.
    Principal {
        /// Time at which the request for approval expires.
        expires_at: Timestamp,
    },
    /// None, because the install applies plans without approval.
    Automatic,
    /// None, because the first provision of the install was approved in advance.
    FirstProvision,
}

/// Decision of a principal on a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanDecision {
    pub step: StepId,
    /// Digest of the plan that the principal reviewed.
    pub digest: Digest,
    /// Actor that decides.
    pub by: Actor,
    /// Reason that was given.
    pub reason: String,
}
