//! What can have happened to a run. The names are on disk: add, never rename.
use serde::{Deserialize, Serialize};

use super::{Cause, Outcome, PlanFacts, RunKind, Skip, StepFailure, StepSpec};
use crate::{
    actor::Actor,
    decider::{Event, Timestamp},
    digest::Digest,
    ids::{InstallId, JobId, StepId},
};

/// A fact about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunEvent {
    /// Somebody asked for an operation on an install.
    Requested {
        /// Whose install is to be changed.
        install: InstallId,
        /// What is to be done.
        kind: RunKind,
        /// Why.
        cause: Cause,
        /// Who asked.
        by: Actor,
        /// Which published config the run is planned from.
        config_version: u32,
        /// In the words of who asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The steps, and the position of the log that they were planned at.
    Planned {
        /// In an order in which each step comes after the steps it needs.
        steps: Vec<StepSpec>,
        /// Everything up to here was known to the planner.
        position: u64,
    },
    /// A step holds its resource and its first job is queued.
    StepStarted {
        /// Which step.
        step: StepId,
        /// The job that plans it, or does it where there is nothing to plan.
        job: JobId,
    },
    /// The runner says what an apply would change.
    PlanProduced {
        /// Which step.
        step: StepId,
        /// The job that planned.
        job: JobId,
        /// What would change.
        #[serde(flatten)]
        plan: PlanFacts,
    },
    /// The step waits for a person's word on the plan's digest.
    ApprovalRequested {
        /// Which step.
        step: StepId,
        /// The plan that is to be approved.
        digest: Digest,
        /// After this moment the request is void.
        #[serde(with = "crate::moment")]
        #[cfg_attr(test, schemars(with = "Timestamp"))]
        expires_at: Timestamp,
    },
    /// Somebody said yes to exactly this plan.
    Approved {
        /// Which step.
        step: StepId,
        /// The plan that was approved.
        digest: Digest,
        /// Who approved.
        by: Actor,
        /// Why.
        reason: String,
    },
    /// Somebody said no to exactly this plan.
    Denied {
        /// Which step.
        step: StepId,
        /// The plan that was denied.
        digest: Digest,
        /// Who denied.
        by: Actor,
        /// Why.
        reason: String,
    },
    /// Nobody answered in time.
    ApprovalExpired {
        /// Which step.
        step: StepId,
        /// The plan that nobody approved.
        digest: Digest,
    },
    /// The plan can no longer be applied as it was approved: the step plans again.
    PlanInvalidated {
        /// Which step.
        step: StepId,
        /// The plan that is void.
        digest: Digest,
        /// What changed under it.
        reason: String,
    },
    /// The job that applies the approved plan is queued.
    ApplyStarted {
        /// Which step.
        step: StepId,
        /// The job that applies.
        job: JobId,
    },
    /// The step did what it was for.
    StepSucceeded {
        /// Which step.
        step: StepId,
        /// Whether there was nothing to change.
        noop: bool,
    },
    /// The step did not do what it was for.
    StepFailed {
        /// Which step.
        step: StepId,
        /// What kind of failure.
        reason: StepFailure,
        /// In words.
        detail: String,
    },
    /// The work of a step failed, and the step starts again by itself after a back-off.
    StepRetryScheduled {
        /// Which step.
        step: StepId,
        /// Number of the retry, from 1.
        attempt: u32,
        /// What kind of failure.
        reason: StepFailure,
        /// In words.
        detail: String,
        /// Earliest start.
        not_before: Timestamp,
    },
    /// The step will not be done in this run.
    StepSkipped {
        /// Which step.
        step: StepId,
        /// Why not.
        reason: Skip,
    },
    /// A failed step is to be tried again.
    StepRetried {
        /// Which step.
        step: StepId,
        /// Who asked.
        by: Actor,
        /// Why, if they say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Somebody wants the run to end.
    CancelRequested {
        /// Who asked.
        by: Actor,
        /// Why.
        reason: String,
        /// Without waiting for the grace period of what works.
        force: bool,
    },
    /// Nothing of this run will happen any more.
    Finished {
        /// How it ended.
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
