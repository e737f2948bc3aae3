//! Runs that make their plans before their first change.
//!
//! With `plan_all`, no apply starts before each step is planned that depends on no change of the
//! run, so an approver sees these plans together. A step with a direct or indirect dependency that
//! changes is planned after this change, and approved later.
use super::{Operation, Run, Step, StepState};

impl Run {
    /// Returns true if the first change of the run waits for plans.
    pub fn awaits_plans(&self) -> bool {
        let plans_all = self.request.as_ref().is_some_and(|request| request.plan_all);
        plans_all
            && !self.has_changed
            && self.steps.iter().any(|at| match at.state {
                StepState::Planning { .. } | StepState::RetryScheduled { .. } => true,
                StepState::Waiting => is_planned(at) && self.dependencies_succeeded(at),
                StepState::AwaitingApproval { .. }
                | StepState::Approved { .. }
                | StepState::Applying { .. }
                | StepState::Executing { .. }
                | StepState::Succeeded { .. }
                | StepState::Failed { .. }
                | StepState::Skipped { .. } => false,
            })
    }

    /// Returns true if the step is planned and approved after a change of a direct or indirect
    /// dependency in this run.
    pub fn is_approved_later(&self, at: &Step) -> bool {
        self.outcome.is_none()
            && self.stop_reason().is_none()
            && is_planned(at)
            && matches!(at.state, StepState::Waiting)
            && !self.is_blocked(at)
            && self.follows_change(at)
    }

    /// Returns true if a direct or indirect dependency of the step has changes that are not applied.
    fn follows_change(&self, at: &Step) -> bool {
        self.follows(at, |state| match state {
            StepState::AwaitingApproval { .. }
            | StepState::Approved { .. }
            | StepState::Applying { .. }
            | StepState::Executing { .. } => true,
            StepState::Waiting
            | StepState::Planning { .. }
            | StepState::RetryScheduled { .. }
            | StepState::Succeeded { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => false,
        })
    }
}

/// Returns true if the step is planned before its change.
fn is_planned(at: &Step) -> bool {
    match at.spec.operation {
        Operation::Apply | Operation::Destroy => true,
        Operation::Execute | Operation::Check => false,
    }
}
