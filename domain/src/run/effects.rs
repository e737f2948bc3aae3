//! Effects that a run requires now. The caller performs an effect. A start or an apply is no longer
//! required after its command on the run. A cancellation is required until the job ends.
use super::{Operation, Preflight, Run, Step, StepState};
use crate::ids::{JobId, StepId};

/// Effect of a run on its install and on jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Queue the job that checks the requirements of the run.
    StartPreflight,
    /// Reserve the resource of the step, and queue the step's first job.
    Start(StepId),
    /// Queue the job that applies the approved plan of the step.
    Apply(StepId),
    /// Request the cancellation of the job.
    CancelJob(JobId),
}

impl Run {
    /// Returns the effects that the run requires now, in the order of its steps.
    pub fn effects(&self) -> Vec<Effect> {
        if self.outcome.is_some() {
            return vec![];
        }
        let stops = self.stop_reason().is_some();
        let preflight = match &self.preflight {
            Preflight::Waiting if !stops => Some(Effect::StartPreflight),
            Preflight::Running { job } if stops => Some(Effect::CancelJob(*job)),
            Preflight::NotRequired
            | Preflight::Waiting
            | Preflight::Running { .. }
            | Preflight::Passed { .. }
            | Preflight::Failed { .. } => None,
        };
        let effect = |at: &Step| match &at.state {
            StepState::Planning { job }
            | StepState::Applying { job, .. }
            | StepState::Executing { job } => stops.then_some(Effect::CancelJob(*job)),
            StepState::Waiting if !stops && self.is_ready(at) => Some(Effect::Start(at.spec.step)),
            StepState::Approved { .. } if !stops && self.allows_changes() => {
                Some(Effect::Apply(at.spec.step))
            }
            StepState::Waiting
            | StepState::Approved { .. }
            | StepState::AwaitingApproval { .. }
            | StepState::RetryScheduled { .. }
            | StepState::Succeeded { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => None,
        };
        preflight.into_iter().chain(self.steps.iter().filter_map(effect)).collect()
    }

    /// Returns true if all dependencies of the step have succeeded. An action has no plan, so it also
    /// waits until the run allows changes.
    pub(super) fn is_ready(&self, at: &Step) -> bool {
        let may_start = match at.spec.operation {
            Operation::Apply | Operation::Destroy | Operation::Check => true,
            Operation::Execute => self.allows_changes(),
        };
        may_start && self.dependencies_succeeded(at)
    }

    pub(super) fn dependencies_succeeded(&self, at: &Step) -> bool {
        let states = self.states();
        let has_succeeded =
            |dependency| matches!(states.get(dependency), Some(StepState::Succeeded { .. }));
        at.spec.depends_on.iter().all(has_succeeded)
    }

    /// Returns true if the preflight has passed and no plan must precede the first change.
    pub fn allows_changes(&self) -> bool {
        self.preflight.allows_changes() && !self.awaits_plans()
    }
}
