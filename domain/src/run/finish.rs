//! Completion, failure and retry of steps, and the end of the run.
use std::collections::{BTreeMap, BTreeSet};

use super::{
    Decision, Outcome, Preflight, PreflightFailure, Run, RunError, RunEvent, Skip, Step,
    StepFailure, StepState,
};
use crate::{
    actor::Actor,
    decider::{Decider, Timestamp},
    ids::{JobId, StepId},
};

impl Run {
    pub(super) fn complete_step(&self, job: JobId) -> Decision {
        let Some(at) = self.current_step_of(job)? else { return Ok(vec![]) };
        match at.state {
            StepState::Applying { .. } | StepState::Executing { .. } => {
                self.with_consequences(vec![RunEvent::StepSucceeded {
                    step: at.spec.step,
                    noop: false,
                }])
            }
            StepState::Waiting
            | StepState::Planning { .. }
            | StepState::AwaitingApproval { .. }
            | StepState::Approved { .. }
            | StepState::RetryScheduled { .. }
            | StepState::Succeeded { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => Err(RunError::WrongStepState),
        }
    }

    pub(super) fn fail_step(
        &self,
        step: StepId,
        job: Option<JobId>,
        reason: StepFailure,
        detail: String,
        retry_at: Option<Timestamp>,
    ) -> Decision {
        if let Some(job) = job {
            match self.current_step_of(job)? {
                None => return Ok(vec![]),
                Some(at) if at.spec.step != step => return Err(RunError::WrongJob),
                Some(_) => {}
            }
        } else if self.step(step).is_some_and(|at| at.state.is_over()) {
            return Ok(vec![]);
        } else {
            let at = self.step_in_progress(step)?;
            // While a job works on the step, the step fails only with that job.
            if at.state.job().is_some() {
                return Err(RunError::WrongStepState);
            }
        }
        let retry = retry_at.and_then(|now| self.next_retry(step, now));
        self.with_consequences(vec![match retry {
            Some((attempt, not_before)) => {
                RunEvent::StepRetryScheduled { step, attempt, reason, detail, not_before }
            }
            None => RunEvent::StepFailed { step, reason, detail },
        }])
    }

    pub(super) fn retry_step(&self, step: StepId, by: Actor, reason: Option<String>) -> Decision {
        let at = self.step_in_progress(step)?;
        if self.cancel.is_some() {
            return Err(RunError::Cancelling);
        }
        if self.preflight.has_failed() {
            return Err(RunError::PreflightFailed);
        }
        match at.state {
            StepState::Failed { .. } | StepState::RetryScheduled { .. } => {
                Ok(vec![RunEvent::StepRetried { step, by, reason }])
            }
            StepState::Waiting
            | StepState::Planning { .. }
            | StepState::AwaitingApproval { .. }
            | StepState::Approved { .. }
            | StepState::Applying { .. }
            | StepState::Executing { .. }
            | StepState::Succeeded { .. }
            | StepState::Skipped { .. } => Err(RunError::NotFailed),
        }
    }

    /// Returns these events and their consequences: skipped steps, and the end of the run if no
    /// step can continue.
    pub(super) fn with_consequences(&self, mut events: Vec<RunEvent>) -> Decision {
        let mut after = self.clone();
        events.iter().cloned().for_each(|event| after.evolve(event));
        if let Some(reason) = after.stop_reason() {
            for step in after.steps.iter().filter(|at| at.can_be_skipped()) {
                let step = step.spec.step;
                events.push(RunEvent::StepSkipped { step, reason });
            }
        }
        let mut after = self.clone();
        events.iter().cloned().for_each(|event| after.evolve(event));
        if after.can_continue() {
            return Ok(events);
        }
        for step in after.steps.iter().filter(|at| !at.state.is_over()) {
            events.push(RunEvent::StepSkipped { step: step.spec.step, reason: Skip::Blocked });
        }
        events.push(RunEvent::Finished { outcome: after.final_outcome() });
        Ok(events)
    }

    /// Returns true if the preflight or a step is in progress, or a step waits for approval or a
    /// retry, or can still start.
    fn can_continue(&self) -> bool {
        self.preflight.running_job().is_some()
            || self.steps.iter().any(|at| match at.state {
                StepState::Waiting => !self.is_blocked(at),
                StepState::Planning { .. }
                | StepState::AwaitingApproval { .. }
                | StepState::Approved { .. }
                | StepState::Applying { .. }
                | StepState::Executing { .. }
                | StepState::RetryScheduled { .. } => true,
                StepState::Succeeded { .. }
                | StepState::Failed { .. }
                | StepState::Skipped { .. } => false,
            })
    }

    /// Returns true if a direct or indirect dependency of the step has ended without success.
    pub(super) fn is_blocked(&self, at: &Step) -> bool {
        self.follows(at, |state| match state {
            StepState::Failed { .. } | StepState::Skipped { .. } => true,
            StepState::Waiting
            | StepState::Planning { .. }
            | StepState::AwaitingApproval { .. }
            | StepState::Approved { .. }
            | StepState::Applying { .. }
            | StepState::Executing { .. }
            | StepState::RetryScheduled { .. }
            | StepState::Succeeded { .. } => false,
        })
    }

    /// Returns true if a dependency of the step has such a state, or a dependency of a waiting one.
    ///
    /// Visits each step once: the number of paths through dependencies is exponential in the number of
    /// steps.
    pub(super) fn follows(&self, at: &Step, has_state: impl Fn(&StepState) -> bool) -> bool {
        let steps: BTreeMap<StepId, &Step> =
            self.steps.iter().map(|step| (step.spec.step, step)).collect();
        let (mut open, mut visited) = (vec![at], BTreeSet::new());
        while let Some(step) = open.pop() {
            for dependency in step.spec.depends_on.iter().filter_map(|id| steps.get(id)) {
                if has_state(&dependency.state) {
                    return true;
                }
                let waits = matches!(dependency.state, StepState::Waiting);
                if waits && visited.insert(dependency.spec.step) {
                    open.push(dependency);
                }
            }
        }
        false
    }

    fn final_outcome(&self) -> Outcome {
        let any = |matches: fn(&StepState) -> bool| self.steps.iter().any(|at| matches(&at.state));
        let cancelled = |state: &StepState| {
            matches!(state, StepState::Failed { reason: StepFailure::JobCancelled, .. })
        };
        let failed: fn(&StepState) -> bool = |state| matches!(state, StepState::Failed { .. });
        let preflight_cancelled = match self.preflight {
            Preflight::Failed { reason: PreflightFailure::JobCancelled, .. } => true,
            Preflight::Failed { .. } => return Outcome::Failed,
            Preflight::NotRequired
            | Preflight::Waiting
            | Preflight::Running { .. }
            | Preflight::Passed { .. } => false,
        };
        if self.steps.iter().any(|at| failed(&at.state) && !cancelled(&at.state)) {
            Outcome::Failed
        } else if self.cancel.is_some() || preflight_cancelled || any(failed) {
            Outcome::Cancelled
        } else if any(|state| matches!(state, StepState::Skipped { reason: Skip::Denied })) {
            Outcome::Denied
        } else if any(|state| matches!(state, StepState::Skipped { .. })) {
            Outcome::Expired
        } else {
            Outcome::Succeeded
        }
    }
}

impl Step {
    /// Returns true if a cancel request or a failed preflight skips the step immediately, because no
    /// job works on the step.
    fn can_be_skipped(&self) -> bool {
        match self.state {
            StepState::Waiting
            | StepState::AwaitingApproval { .. }
            | StepState::Approved { .. }
            | StepState::RetryScheduled { .. } => true,
            StepState::Planning { .. }
            | StepState::Applying { .. }
            | StepState::Executing { .. }
            | StepState::Succeeded { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => false,
        }
    }
}
