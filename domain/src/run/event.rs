//! Events of a run. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use super::{Cause, Outcome, PlanFacts, RunKind, Skip, StepFailure, StepSpec};
use crate::{
    actor::Actor,
    decider::{Event, Timestamp},
    digest::Digest,
    ids::{InstallId, JobId, StepId},
};

/// Event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunEvent {
    /// An actor requested an operation on an install.
    Requested {
        /// Install to change.
        install: InstallId,
        /// Requested operation.
        kind: RunKind,
        /// Cause of the request.
        cause: Cause,
        /// Actor of the request.
        by: Actor,
        /// Config version that the run is planned from.
        config_version: u32,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The steps were planned at a position of the log.
    Planned {
        /// Steps of the run, each after its dependencies.
        steps: Vec<StepSpec>,
        /// Log position that the planner had read up to.
        position: u64,
    },
    /// A step reserved its resource, and its first job is queued.
    StepStarted {
        /// Id of the step.
        step: StepId,
        /// Job that plans the step, or executes it if there is nothing to plan.
        job: JobId,
    },
    /// The runner reported a plan: the changes that an apply would make.
    PlanProduced {
        /// Id of the step.
        step: StepId,
        /// Job that made the plan.
        job: JobId,
        /// Planned changes.
        #[serde(flatten)]
        plan: PlanFacts,
    },
    /// The step waits for approval of the plan.
    ApprovalRequested {
        /// Id of the step.
        step: StepId,
        /// Digest of the plan to approve.
        digest: Digest,
        /// Time at which the request for approval expires.
        #[serde(with = "crate::moment")]
        #[cfg_attr(test, schemars(with = "Timestamp"))]
        expires_at: Timestamp,
    },
    /// An actor approved exactly this plan.
    Approved {
        /// Id of the step.
        step: StepId,
        /// Digest of the approved plan.
        digest: Digest,
        /// Actor that approved the plan.
        by: Actor,
        /// Reason that was given.
        reason: String,
    },
    /// An actor denied exactly this plan.
    Denied {
        /// Id of the step.
        step: StepId,
        /// Digest of the denied plan.
        digest: Digest,
        /// Actor that denied the plan.
        by: Actor,
        /// Reason for the decision.
        reason: String,
    },
    /// The plan was not approved in time.
    ApprovalExpired {
        /// Id of the step.
        step: StepId,
        /// Digest of the plan.
        digest: Digest,
    },
    /// The approved plan can no longer be applied. The step plans again.
    PlanInvalidated {
        /// Id of the step.
        step: StepId,
        /// Digest of the invalid plan.
        digest: Digest,
        /// Change that made the plan stale.
        reason: String,
    },
    /// The job that applies the approved plan is queued.
    ApplyStarted {
        /// Id of the step.
        step: StepId,
        /// Job that applies the plan.
        job: JobId,
    },
    /// The work of the step succeeded, or its plan had no changes.
    StepSucceeded {
        /// Id of the step.
        step: StepId,
        /// True if the plan had no changes.
        noop: bool,
    },
    /// The step failed, and no automatic retry follows.
    StepFailed {
        /// Id of the step.
        step: StepId,
        /// Kind of failure.
        reason: StepFailure,
        /// Explanation for users.
        detail: String,
    },
    /// The work of a step failed, and the step starts again automatically after a back-off.
    StepRetryScheduled {
        /// Id of the step.
        step: StepId,
        /// Number of the retry, from 1.
        attempt: u32,
        /// Kind of failure.
        reason: StepFailure,
        /// Explanation for users.
        detail: String,
        /// Earliest start.
        not_before: Timestamp,
    },
    /// The step is skipped in this run.
    StepSkipped {
        /// Id of the step.
        step: StepId,
        /// Reason for which the step is skipped.
        reason: Skip,
    },
    /// A failed step starts again, by request of a user or after its back-off.
    StepRetried {
        /// Id of the step.
        step: StepId,
        /// Actor of the request.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// An actor requested the cancellation of the run.
    CancelRequested {
        /// Actor of the request.
        by: Actor,
        /// Reason that was given.
        reason: String,
        /// True to shorten the grace period of running jobs.
        force: bool,
    },
    /// The run has finished.
    Finished {
        /// Outcome of the run.
        outcome: Outcome,
    },
}

impl Event for RunEvent {
    fn name(&self) -> &'static str {
        match self {
            RunEvent::Requested { .. } => "run.requested",
            RunEvent::Planned { .. } => "run.planned",
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
