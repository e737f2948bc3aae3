//! What can be asked of a run, in the order of its life.
use super::{PlanFacts, Request, StepFailure, StepSpec};
use crate::{
    actor::Actor,
    decider::Timestamp,
    digest::Digest,
    ids::{JobId, StepId},
};

/// A request that may be refused.
#[derive(Debug, Clone, PartialEq)]
pub enum RunCommand {
    /// Ask for an operation, with the steps it was planned to have.
    Request {
        /// What is asked.
        request: Request,
        /// Its steps, each after the steps it needs.
        steps: Vec<StepSpec>,
        /// What the planner knew of the log.
        position: u64,
    },
    /// Queue the first job of a step.
    StartStep {
        /// Which step.
        step: StepId,
        /// Its job.
        job: JobId,
    },
    /// Take in what the plan job found.
    RecordPlan {
        /// The job that planned.
        job: JobId,
        /// What would change.
        plan: PlanFacts,
        /// Who must say yes.
        approval: Approval,
    },
    /// Say yes to a plan.
    Approve(Word),
    /// Say no to a plan.
    Deny(Word),
    /// Nobody answered in time.
    ExpireApproval {
        /// Which step.
        step: StepId,
        /// The plan that nobody approved.
        digest: Digest,
    },
    /// Queue the apply of an approved plan.
    StartApply {
        /// Which step.
        step: StepId,
        /// Its job.
        job: JobId,
    },
    /// The approved plan can no longer be applied.
    InvalidatePlan {
        /// The job that was to apply it.
        job: JobId,
        /// What changed under it.
        reason: String,
    },
    /// The work of a step is done.
    CompleteStep {
        /// The job that did it.
        job: JobId,
    },
    /// The work of a step failed, or could not begin.
    FailStep {
        /// Which step.
        step: StepId,
        /// The job that failed; none when it could not begin.
        job: Option<JobId>,
        /// What kind of failure.
        reason: StepFailure,
        /// In words.
        detail: String,
        /// Whether the result is known and another attempt may succeed.
        may_retry: bool,
    },
    /// Start a step again whose back-off has elapsed.
    StartRetry {
        /// The step.
        step: StepId,
        /// Number of the retry.
        attempt: u32,
    },
    /// Try a failed step again, while the run goes on.
    RetryStep {
        /// Which step.
        step: StepId,
        /// Who asks.
        by: Actor,
        /// Why, if they say.
        reason: Option<String>,
    },
    /// End the run.
    RequestCancel {
        /// Who asks.
        by: Actor,
        /// Why.
        reason: String,
        /// Without waiting for the grace period of what works.
        force: bool,
    },
}

/// Who must say yes to a plan that changes something.
#[derive(Debug, Clone, PartialEq)]
pub enum Approval {
    /// A principal, before this moment.
    Principal {
        /// After it, the request is void.
        expires_at: Timestamp,
    },
    /// Nobody: the install's setting says so.
    Automatic,
    /// No principal: the install approves its first provision in advance.
    FirstProvision,
}

/// A principal's word on a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    /// Which step.
    pub step: StepId,
    /// The plan that was looked at.
    pub digest: Digest,
    /// Who says it.
    pub by: Actor,
    /// Why.
    pub reason: String,
}
