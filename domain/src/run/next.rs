//! What a run wants now. The shell does it and tells the run; asking twice is harmless.
use super::{Run, Step, StepState};
use crate::ids::{JobId, StepId};

/// One thing that a run wants now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Hold what the step changes, and queue its first job.
    Start(StepId),
    /// Queue the apply of the approved plan.
    Apply(StepId),
    /// Ask the job's runner to stop.
    CancelJob(JobId),
}

impl Run {
    /// What the run wants now, in the order of its steps.
    pub fn next(&self) -> Vec<Next> {
        if self.outcome.is_some() {
            return vec![];
        }
        let wanted = |at: &Step| match &at.state {
            StepState::Planning { job }
            | StepState::Applying { job, .. }
            | StepState::Executing { job } => self.cancel.as_ref().map(|_| Next::CancelJob(*job)),
            StepState::Waiting if self.cancel.is_none() && self.is_ready(at) => {
                Some(Next::Start(at.spec.step))
            }
            StepState::Approved { .. } if self.cancel.is_none() => Some(Next::Apply(at.spec.step)),
            StepState::Waiting
            | StepState::Approved { .. }
            | StepState::AwaitingApproval { .. }
            | StepState::RetryScheduled { .. }
            | StepState::Succeeded { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => None,
        };
        self.steps.iter().filter_map(wanted).collect()
    }

    /// Whether every step that it needs has succeeded.
    pub(super) fn is_ready(&self, at: &Step) -> bool {
        let states = self.states();
        let done = |need| matches!(states.get(need), Some(StepState::Succeeded { .. }));
        at.spec.depends_on.iter().all(done)
    }
}
