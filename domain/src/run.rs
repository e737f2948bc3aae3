//! A run is one operation on an install: a graph of steps.
//!
//! ```text
//! step: waiting ─start─▶ planning ─plan─┬─ no changes ────────────────────────▶ succeeded
//!          ▲                            ├─ awaiting approval ─approve─▶ approved
//!          │                            └─ automatic ─────────────────────┤
//!          └───────────── plan stale  ◀────────── applying ◀─start apply──┘
//!                                                    └─ complete | fail ─▶ succeeded | failed
//! ```
//! A step starts when its dependencies have succeeded. A failed step blocks only its dependents. If
//! a job fails with a known result, its step may start again automatically, after a back-off
//! (`retry.rs`). The run finishes when no step can continue, and has one outcome.
//!
//! Applies and actions start only after the preflight of the run has passed (`preflight.rs`). A run
//! can also make its plans before its first change (`plan_all.rs`).
use crate::{
    actor::Actor,
    decider::{Decider, Timestamp},
    ids::InstallId,
};

mod approve;
mod command;
mod effects;
mod error;
mod event;
mod finish;
pub mod plan;
mod plan_all;
mod preflight;
mod remaining;
mod retry;
mod state;
mod step;
#[cfg(test)]
mod tests;
pub use command::{Approval, PlanDecision, RunCommand};
pub use effects::Effect;
pub use error::RunError;
pub use event::RunEvent;
pub use preflight::{Preflight, PreflightFailure};
pub use remaining::RemainingWork;
pub use state::{
    Cancel, Cause, Operation, Outcome, Request, Run, RunKind, StepOptions, StepPlan, StepSpec,
    Target,
};
pub use step::{Skip, Step, StepFailure, StepState};

type Decision = Result<Vec<RunEvent>, RunError>;

/// Number of stale plans after which a step fails. A retry of the step starts a new count.
pub const MAX_PLANS: u32 = 3;

impl Decider for Run {
    const NAME: &'static str = "run";
    type Command = RunCommand;
    type Event = RunEvent;
    type Error = RunError;

    fn decide(&self, command: RunCommand, now: Timestamp) -> Decision {
        match command {
            RunCommand::Request { request, steps, position } => {
                self.request(request, steps, position)
            }
            RunCommand::StartPreflight { job } => self.start_preflight(job),
            RunCommand::RecordChecks { job, checks } => self.record_checks(job, checks),
            RunCommand::FailPreflight { job, reason, detail, checks } => {
                self.fail_preflight(job, reason, detail, checks)
            }
            RunCommand::StartStep { step, job } => self.start_step(step, job),
            RunCommand::RecordPlan { job, plan, approval } => self.record_plan(job, plan, approval),
            RunCommand::Approve(decision) => self.approve(decision, now),
            RunCommand::Deny(decision) => self.deny(decision),
            RunCommand::ExpireApproval { step, digest } => self.expire_approval(step, digest),
            RunCommand::StartApply { step, job } => self.start_apply(step, job),
            RunCommand::InvalidatePlan { job, reason } => self.invalidate_plan(job, reason),
            RunCommand::CompleteStep { job } => self.complete_step(job),
            RunCommand::FailStep { step, job, reason, detail, may_retry } => {
                let retry_at = may_retry.then_some(now);
                self.fail_step(step, job, reason, detail, retry_at)
            }
            RunCommand::StartRetry { step, attempt } => Ok(self.start_retry(step, attempt, now)),
            RunCommand::RetryStep { step, by, reason } => self.retry_step(step, by, reason),
            RunCommand::RequestCancel { by, reason, force } => {
                self.request_cancel(by, reason, force)
            }
        }
    }

    fn evolve(&mut self, event: RunEvent) {
        self.apply(event);
    }

    fn customer(&self, _id: &str) -> Option<InstallId> {
        self.request.as_ref().map(|request| request.install)
    }
}

impl Run {
    fn request(&self, request: Request, steps: Vec<StepSpec>, position: u64) -> Decision {
        if let Some(existing) = &self.request {
            return if *existing == request { Ok(vec![]) } else { Err(RunError::AlreadyRequested) };
        }
        if steps.is_empty() {
            return Err(RunError::NoSteps);
        }
        let in_order = |at: usize| {
            let before = &steps[..at];
            let is_before = |dependency| before.iter().any(|step| step.step == dependency);
            steps[at].depends_on.iter().all(|dependency| is_before(*dependency))
                && !is_before(steps[at].step)
        };
        if !(0..steps.len()).all(in_order) {
            return Err(RunError::StepsOutOfOrder);
        }
        let Request { install, kind, cause, by, config_version, reason, plan_all } = request;
        if plan_all && !kind.can_plan_all() {
            return Err(RunError::NothingToPlan { kind });
        }
        let requested =
            RunEvent::Requested { install, kind, cause, by, config_version, reason, plan_all };
        Ok(vec![requested, RunEvent::Planned { steps, position }])
    }

    fn start_step(&self, step: crate::ids::StepId, job: crate::ids::JobId) -> Decision {
        let at = self.step_in_progress(step)?;
        match &at.state {
            StepState::Planning { job: by } | StepState::Executing { job: by } if *by == job => {
                Ok(vec![])
            }
            StepState::Waiting if self.cancel.is_some() => Err(RunError::Cancelling),
            StepState::Waiting if self.preflight.has_failed() => Err(RunError::PreflightFailed),
            StepState::Waiting if !self.is_ready(at) => Err(RunError::NotReady),
            StepState::Waiting => Ok(vec![RunEvent::StepStarted { step, job }]),
            StepState::Planning { .. }
            | StepState::AwaitingApproval { .. }
            | StepState::Approved { .. }
            | StepState::Applying { .. }
            | StepState::Executing { .. }
            | StepState::RetryScheduled { .. }
            | StepState::Succeeded { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => Err(RunError::WrongStepState),
        }
    }

    /// Requests the cancellation of the run. A second request changes nothing, unless it adds
    /// `force`.
    fn request_cancel(&self, by: Actor, reason: String, force: bool) -> Decision {
        self.check_in_progress()?;
        if self.cancel.as_ref().is_some_and(|cancel| cancel.force || !force) {
            return Ok(vec![]);
        }
        if reason.trim().is_empty() {
            return Err(RunError::NoReason);
        }
        self.with_consequences(vec![RunEvent::CancelRequested { by, reason, force }])
    }

    /// Returns an error if the run does not exist or has finished.
    fn check_in_progress(&self) -> Result<(), RunError> {
        match (&self.request, self.outcome) {
            (None, _) => Err(RunError::NotFound),
            (Some(_), Some(outcome)) => Err(RunError::AlreadyEnded { outcome }),
            (Some(_), None) => Ok(()),
        }
    }

    /// Returns a step of a run that has not finished.
    fn step_in_progress(&self, step: crate::ids::StepId) -> Result<&Step, RunError> {
        self.check_in_progress()?;
        self.step(step).ok_or(RunError::NoSuchStep)
    }
}
