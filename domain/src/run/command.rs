use super::{PreflightFailure, Request, StepFailure, StepPlan, StepSpec};
use crate::{
    actor::Actor,
    check::Check,
    decider::Timestamp,
    digest::Digest,
    ids::{JobId, StepId},
};

/// Commands of a run, in the order of its lifecycle.
#[derive(Debug, Clone, PartialEq)]
pub enum RunCommand {
    /// Request an operation on an install, with its planned steps.
    Request {
        request: Request,
        /// Steps of the run, each after its dependencies.
        steps: Vec<StepSpec>,
        /// Last log position that the planner had read.
        position: u64,
    },
    /// Record the job that checks the requirements of the run. The same commit queues the job.
    StartPreflight {
        job: JobId,
    },
    /// Record the checks that the job of the preflight reported.
    RecordChecks {
        job: JobId,
        checks: Vec<Check>,
    },
    /// Record that the requirements could not be checked, or that the server found them not met.
    FailPreflight {
        /// Job that ended without checks. `None` if no job was queued.
        job: Option<JobId>,
        reason: PreflightFailure,
        detail: String,
        /// Checks of the server.
        checks: Vec<Check>,
    },
    /// Record the first job of a step. The same commit queues the job.
    StartStep {
        step: StepId,
        /// Job that plans the step, or executes it if there is nothing to plan.
        job: JobId,
    },
    /// Record the plan of a plan job, and request approval if the plan needs it.
    RecordPlan {
        job: JobId,
        plan: StepPlan,
        approval: Approval,
    },
    Approve(PlanDecision),
    Deny(PlanDecision),
    /// Expire a plan that was not approved in time.
    ExpireApproval {
        step: StepId,
        digest: Digest,
    },
    /// Record the job that applies the approved plan. The same commit queues the job.
    StartApply {
        step: StepId,
        job: JobId,
    },
    /// Invalidate the approved plan of an apply job, because the plan is stale.
    InvalidatePlan {
        /// Apply job that found its plan stale.
        job: JobId,
        /// Explanation from the runner, for users.
        reason: String,
    },
    /// Complete the step of a job that succeeded.
    CompleteStep {
        job: JobId,
    },
    /// Record that a step failed or could not start.
    FailStep {
        step: StepId,
        /// Failed job. `None` if the step could not start.
        job: Option<JobId>,
        reason: StepFailure,
        detail: String,
        /// True if an automatic retry is safe and may succeed.
        may_retry: bool,
    },
    /// Start a step again after the back-off of an automatic retry.
    StartRetry {
        step: StepId,
        /// Number of the automatic retry, from 1.
        attempt: u32,
    },
    /// Retry a step that failed or waits for an automatic retry. The run must be in progress.
    RetryStep {
        step: StepId,
        by: Actor,
        reason: Option<String>,
    },
    /// Request the cancellation of the run and of its jobs.
    RequestCancel {
        by: Actor,
        reason: String,
        /// True to shorten the grace period between SIGTERM and SIGKILL of running jobs.
        force: bool,
    },
}

/// Approval that a plan needs before its apply.
#[derive(Debug, Clone, PartialEq)]
pub enum Approval {
    /// Approval by a principal before the expiry time.
    Principal {
        /// Time from which the aggregate rejects an approval.
        expires_at: Timestamp,
    },
    /// Automatic approval, because the install approves all plans.
    Automatic,
    /// Automatic approval, because a user approved the first provision in advance.
    FirstProvision,
}

/// Decision of a principal on a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanDecision {
    pub step: StepId,
    /// Digest of the plan that the principal reviewed.
    pub digest: Digest,
    pub by: Actor,
    pub reason: String,
}
