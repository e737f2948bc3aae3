//! Events of a run. Their names and payloads are stored: from the first release on, add and never rename.
use serde::{Deserialize, Serialize};

use super::{Cause, Outcome, PlanFacts, RunKind, Skip, StepFailure, StepSpec};
use crate::{
    actor::Actor,
    decider::{Event, Timestamp},
    digest::Digest,
    ids::{InstallId, JobId, StepId},
};

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunEvent {
    /// An operation on an install was requested.
    Requested {
        /// The install.
        install: InstallId,
        /// Kind of the operation.
        kind: RunKind,
        /// Cause of the run.
        cause: Cause,
        /// Principal that asked.
        by: Actor,
        /// Config version that the run is planned from.
        config_version: u32,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The run was planned.
    Planned {
        /// The steps, each after the steps that it depends on.
        steps: Vec<StepSpec>,
        /// Position of the log up to which the planner read.
        position: u64,
    },
    /// A step reserved its resource, and its first job is queued.
    StepStarted {
        /// The step.
        step: StepId,
        /// The job that plans it, or executes it if there is nothing to plan.
        job: JobId,
    },
    /// The plan of a step is ready.
    PlanProduced {
        /// The step.
        step: StepId,
        /// The job that produced the plan.
        job: JobId,
        /// Digest, summary and counts of the plan.
        #[serde(flatten)]
        plan: PlanFacts,
    },
    /// The step waits for approval of the plan.
    ApprovalRequested {
        /// The step.
        step: StepId,
        /// Digest of the plan.
        digest: Digest,
        /// Time at which the request expires.
        #[serde(with = "crate::moment")]
        #[cfg_attr(test, schemars(with = "Timestamp"))]
        expires_at: Timestamp,
    },
    /// A principal approved the plan.
    Approved {
        /// The step.
        step: StepId,
        /// Digest of the plan.
        digest: Digest,
        /// Principal that approved it.
        by: Actor,
        /// Reason.
        reason: String,
    },
    /// A principal denied the plan.
    Denied {
        /// The step.
        step: StepId,
        /// Digest of the plan.
        digest: Digest,
        /// Principal that denied it.
        by: Actor,
        /// Reason.
        reason: String,
    },
    /// The approval request expired.
    ApprovalExpired {
        /// The step.
        step: StepId,
        /// Digest of the plan.
        digest: Digest,
    },
    /// The plan is stale and can no longer be applied as approved: the step plans again.
    PlanInvalidated {
        /// The step.
        step: StepId,
        /// Digest of the plan.
        digest: Digest,
        /// Change that made the plan stale.
        reason: String,
    },
    /// The job that applies the approved plan is queued.
    ApplyStarted {
        /// The step.
        step: StepId,
        /// The job that applies it.
        job: JobId,
    },
    /// The step succeeded.
    StepSucceeded {
        /// The step.
        step: StepId,
        /// Whether the plan had no changes.
        noop: bool,
    },
    /// The step failed.
    StepFailed {
        /// The step.
        step: StepId,
        /// Kind of failure.
        reason: StepFailure,
        /// Description of the failure.
        detail: String,
    },
    /// The work of a step failed, and the step restarts after a back-off.
    StepRetryScheduled {
        /// The step.
        step: StepId,
        /// Number of the retry, from 1.
        attempt: u32,
        /// Kind of failure.
        reason: StepFailure,
        /// Description of the failure.
        detail: String,
        /// Earliest start.
        not_before: Timestamp,
    },
    /// The step is not executed in this run.
    StepSkipped {
        /// The step.
        step: StepId,
        /// Reason.
        reason: Skip,
    },
    /// A retry of a failed step was requested.
    StepRetried {
        /// The step.
        step: StepId,
        /// Principal that asked.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Cancellation was requested.
    CancelRequested {
        /// Principal that asked.
        by: Actor,
        /// Reason.
        reason: String,
        /// Whether to kill running work without its grace period.
        force: bool,
    },
    /// The run finished.
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
