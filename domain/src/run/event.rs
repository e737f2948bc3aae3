//! Events of a run. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use super::{Cause, Outcome, PreflightFailure, RunKind, Skip, StepFailure, StepPlan, StepSpec};
use crate::{
    actor::Actor,
    check::Check,
    decider::{Event, Timestamp},
    digest::Digest,
    ids::{InstallId, JobId, StepId},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunEvent {
    /// An actor requested an operation on an install.
    Requested {
        install: InstallId,
        kind: RunKind,
        cause: Cause,
        by: Actor,
        /// Config version from which the steps are planned.
        config_version: u32,
        /// Reason that the actor gave. Absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// True if the run makes all plans that it can before its first change. Absent if not.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        plan_all: bool,
    },
    /// The steps of the run were planned from the actual state of the install. Committed with
    /// `run.requested`.
    Planned {
        /// Steps of the run, each after its dependencies.
        steps: Vec<StepSpec>,
        /// Last log position that the planner had read.
        position: u64,
    },
    /// The job that checks the requirements of the run is queued.
    PreflightStarted { job: JobId },
    /// The runner checked the requirements of the run, and no check failed. Applies and actions may
    /// start.
    PreflightPassed {
        job: JobId,
        /// Failed checks come first, then deferred ones.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        checks: Vec<Check>,
    },
    /// A requirement of the run is not met, or the requirements could not be checked. The run
    /// changes nothing: its steps are skipped, and its plan jobs are cancelled.
    PreflightFailed {
        /// Job of the preflight. Absent if the server found the problem without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<JobId>,
        /// Stable code of the failure.
        reason: PreflightFailure,
        /// Explanation of the failure for users.
        detail: String,
        /// Failed checks come first, then deferred ones.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        checks: Vec<Check>,
    },
    /// A step started: its resource is reserved, and its first job is queued.
    StepStarted {
        step: StepId,
        /// Job that plans the step, or executes it if there is nothing to plan.
        job: JobId,
    },
    /// The runner reported a plan: the changes that an apply would make.
    PlanProduced {
        step: StepId,
        job: JobId,
        #[serde(flatten)]
        plan: StepPlan,
    },
    /// The plan of the step waits for approval by a principal.
    ApprovalRequested {
        step: StepId,
        digest: Digest,
        /// Time from which the server rejects an approval.
        #[serde(with = "crate::moment")]
        #[cfg_attr(test, schemars(with = "Timestamp"))]
        expires_at: Timestamp,
    },
    /// An actor approved exactly this plan: a principal, or a policy for automatic approval.
    Approved {
        step: StepId,
        digest: Digest,
        /// Actor of the approval.
        by: Actor,
        /// Reason that the actor gave.
        reason: String,
    },
    /// An actor denied exactly this plan. The step is skipped.
    Denied {
        step: StepId,
        digest: Digest,
        /// Actor of the denial.
        by: Actor,
        /// Reason that the actor gave.
        reason: String,
    },
    /// No actor approved the plan in time. The step is skipped.
    ApprovalExpired { step: StepId, digest: Digest },
    /// The approved plan is stale, so its approval is invalid. The step plans again, or fails after
    /// three stale plans.
    PlanInvalidated {
        step: StepId,
        digest: Digest,
        /// Explanation from the runner, for users.
        reason: String,
    },
    /// The job that applies the approved plan is queued.
    ApplyStarted { step: StepId, job: JobId },
    /// The last job of the step succeeded, or the plan of the step had no changes.
    StepSucceeded {
        step: StepId,
        /// True if the plan had no changes.
        noop: bool,
    },
    /// The step failed, and no automatic retry follows. Its dependents do not start unless a retry
    /// of the step succeeds.
    StepFailed {
        step: StepId,
        /// Stable code of the failure.
        reason: StepFailure,
        /// Explanation of the failure for users.
        detail: String,
    },
    /// A job of the step failed. The step starts again automatically after a back-off.
    StepRetryScheduled {
        step: StepId,
        /// Number of the automatic retry, from 1.
        attempt: u32,
        /// Stable code of the failure.
        reason: StepFailure,
        /// Explanation of the failure for users.
        detail: String,
        /// Earliest start of the retry.
        not_before: Timestamp,
    },
    /// The step does not continue in this run.
    StepSkipped {
        step: StepId,
        /// Stable code of the reason.
        reason: Skip,
    },
    /// A failed step starts again: a user requested a retry, or the back-off has elapsed.
    StepRetried {
        step: StepId,
        by: Actor,
        /// Reason that the actor gave. Absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// An actor requested the cancellation of the run. The server requests the cancellation of the
    /// run's jobs, and unfinished steps without a job are skipped.
    CancelRequested {
        by: Actor,
        /// Reason that the actor gave.
        reason: String,
        /// True to shorten the grace period between SIGTERM and SIGKILL of running jobs.
        force: bool,
    },
    /// No step can continue, so the run has its final outcome.
    Finished { outcome: Outcome },
}

impl Event for RunEvent {
    fn name(&self) -> &'static str {
        match self {
            RunEvent::Requested { .. } => "run.requested",
            RunEvent::Planned { .. } => "run.planned",
            RunEvent::PreflightStarted { .. } => "run.preflight_started",
            RunEvent::PreflightPassed { .. } => "run.preflight_passed",
            RunEvent::PreflightFailed { .. } => "run.preflight_failed",
            RunEvent::StepStarted { .. } => "run.step_started",
            RunEvent::PlanProduced { .. } => "run.plan_produced",
            RunEvent::ApprovalRequested { .. } => "run.approval_requested",
            RunEvent::Approved { .. } => "run.approved",
            RunEvent::Denied { .. } => "run.denied",
            RunEvent::ApprovalExpired { .. } => "run.approval_expired",
            RunEvent::PlanInvalidated { .. } => "run.plan_invalidated",
            RunEvent::ApplyStarted { .. } => "run.apply_started",
            RunEvent::StepSucceeded { .. } => "run.step_succeeded",
            RunEvent::StepFailed { .. } => "run.step_failed",
            RunEvent::StepRetryScheduled { .. } => "run.step_retry_scheduled",
            RunEvent::StepSkipped { .. } => "run.step_skipped",
            RunEvent::StepRetried { .. } => "run.step_retried",
            RunEvent::CancelRequested { .. } => "run.cancel_requested",
            RunEvent::Finished { .. } => "run.finished",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
