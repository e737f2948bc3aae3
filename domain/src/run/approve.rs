//! Plans of a step, and their approval or denial.
use super::{
    Approval, Decision, MAX_PLANS, Operation, PlanDecision, Run, RunError, RunEvent, RunKind, Skip,
    Step, StepFailure, StepPlan, StepState,
};
use crate::{
    actor::Actor,
    decider::Timestamp,
    digest::Digest,
    ids::{JobId, StepId},
};

impl Run {
    pub(super) fn record_plan(&self, job: JobId, plan: StepPlan, approval: Approval) -> Decision {
        let at = match self.current_step_of(job)? {
            Some(at) => at,
            None => return Ok(vec![]),
        };
        if !matches!(at.state, StepState::Planning { .. }) {
            return Err(RunError::WrongStepState);
        }
        let kind = self.request.as_ref().map(|request| request.kind);
        if approval == Approval::FirstProvision && kind != Some(RunKind::Provision) {
            return Err(RunError::NotAProvision);
        }
        let (step, digest) = (at.spec.step, plan.digest.clone());
        let noop = plan.noop && !at.spec.options.applies_noops;
        let is_check = at.spec.operation == Operation::Check;
        let has_changes = !plan.noop;
        let mut events = vec![RunEvent::PlanProduced { step, job, plan }];
        if is_check {
            events.push(RunEvent::StepSucceeded { step, noop: !has_changes });
        } else if noop {
            events.push(RunEvent::StepSucceeded { step, noop });
        } else {
            events.push(match approval {
                Approval::Principal { expires_at } => {
                    RunEvent::ApprovalRequested { step, digest, expires_at }
                }
                Approval::Automatic => {
                    let by = Actor::Policy("auto_approve".into());
                    let reason = "the install applies plans without approval".into();
                    RunEvent::Approved { step, digest, by, reason }
                }
                Approval::FirstProvision => {
                    let by = Actor::Policy("auto_approve_first".into());
                    let reason = "the first provision was approved in advance".into();
                    RunEvent::Approved { step, digest, by, reason }
                }
            });
        }
        self.with_consequences(events)
    }

    /// Approves a plan. Rejects the approval from the expiry time on, even if the timer has not
    /// recorded the expiry yet.
    pub(super) fn approve(&self, decision: PlanDecision, now: Timestamp) -> Decision {
        let at = self.step_in_progress(decision.step)?;
        if let StepState::Approved { plan } | StepState::Applying { plan, .. } = &at.state
            && plan.digest == decision.digest
        {
            return Ok(vec![]);
        }
        self.check_decision(at, &decision)?;
        if let StepState::AwaitingApproval { expires_at, .. } = &at.state
            && now >= *expires_at
        {
            return Err(RunError::ApprovalExpired { at: *expires_at });
        }
        let PlanDecision { step, digest, by, reason } = decision;
        Ok(vec![RunEvent::Approved { step, digest, by, reason }])
    }

    pub(super) fn deny(&self, decision: PlanDecision) -> Decision {
        let at = self.step_in_progress(decision.step)?;
        self.check_decision(at, &decision)?;
        let PlanDecision { step, digest, by, reason } = decision;
        self.with_consequences(vec![
            RunEvent::Denied { step, digest, by, reason },
            RunEvent::StepSkipped { step, reason: Skip::Denied },
        ])
    }

    pub(super) fn expire_approval(&self, step: StepId, digest: Digest) -> Decision {
        match &self.step_in_progress(step)?.state {
            StepState::AwaitingApproval { plan, .. } if plan.digest == digest => self
                .with_consequences(vec![
                    RunEvent::ApprovalExpired { step, digest },
                    RunEvent::StepSkipped { step, reason: Skip::Expired },
                ]),
            StepState::AwaitingApproval { .. }
            | StepState::Waiting
            | StepState::Planning { .. }
            | StepState::Approved { .. }
            | StepState::Applying { .. }
            | StepState::Executing { .. }
            | StepState::RetryScheduled { .. }
            | StepState::Succeeded { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => Ok(vec![]),
        }
    }

    pub(super) fn start_apply(&self, step: StepId, job: JobId) -> Decision {
        let at = self.step_in_progress(step)?;
        match &at.state {
            StepState::Applying { job: by, .. } if *by == job => Ok(vec![]),
            StepState::Approved { .. } if self.cancel.is_some() => Err(RunError::Cancelling),
            StepState::Approved { .. } if !self.preflight.allows_changes() => {
                Err(RunError::PreflightNotPassed)
            }
            StepState::Approved { .. } if self.awaits_plans() => Err(RunError::PlansMissing),
            StepState::Approved { .. } => Ok(vec![RunEvent::ApplyStarted { step, job }]),
            StepState::Waiting
            | StepState::Planning { .. }
            | StepState::AwaitingApproval { .. }
            | StepState::Applying { .. }
            | StepState::Executing { .. }
            | StepState::RetryScheduled { .. }
            | StepState::Succeeded { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => Err(RunError::WrongStepState),
        }
    }

    /// Invalidates a stale plan together with its approval. The step plans again, but fails after
    /// [`MAX_PLANS`] stale plans.
    pub(super) fn invalidate_plan(&self, job: JobId, reason: String) -> Decision {
        let Some(at) = self.current_step_of(job)? else { return Ok(vec![]) };
        let StepState::Applying { plan, .. } = &at.state else {
            return Err(RunError::WrongStepState);
        };
        let (step, digest) = (at.spec.step, plan.digest.clone());
        let invalidated = RunEvent::PlanInvalidated { step, digest, reason: reason.clone() };
        if at.voided + 1 < MAX_PLANS {
            return self.with_consequences(vec![invalidated]);
        }
        let failed =
            RunEvent::StepFailed { step, reason: StepFailure::PlanUnstable, detail: reason };
        self.with_consequences(vec![invalidated, failed])
    }

    fn check_decision(&self, at: &Step, decision: &PlanDecision) -> Result<(), RunError> {
        if decision.reason.trim().is_empty() {
            return Err(RunError::NoReason);
        }
        match &at.state {
            StepState::AwaitingApproval { plan, .. } if plan.digest == decision.digest => Ok(()),
            StepState::AwaitingApproval { plan, .. } => {
                Err(RunError::AnotherPlan { waiting: plan.digest.clone() })
            }
            StepState::Waiting
            | StepState::Planning { .. }
            | StepState::Approved { .. }
            | StepState::Applying { .. }
            | StepState::Executing { .. }
            | StepState::RetryScheduled { .. }
            | StepState::Succeeded { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => Err(RunError::NothingToApprove),
        }
    }

    /// Returns the step that the job works on. `None` if the job worked on a step earlier.
    pub(super) fn current_step_of(&self, job: JobId) -> Result<Option<&Step>, RunError> {
        if self.request.is_none() {
            return Err(RunError::NotFound);
        }
        if let Some(at) = self.step_of(job) {
            return Ok(Some(at));
        }
        let has_worked = self.steps.iter().any(|step| step.jobs.contains(&job));
        if has_worked { Ok(None) } else { Err(RunError::WrongJob) }
    }
}
