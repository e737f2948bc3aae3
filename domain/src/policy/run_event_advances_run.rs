//! Performs the effects of a run after an event that may require further effects.
use super::{PolicyEvent, Reaction};
use crate::run::RunEvent;

pub(super) fn react(event: &PolicyEvent) -> Option<Reaction> {
    let PolicyEvent::Run(run, event) = event else { return None };
    match event {
        RunEvent::Planned { .. }
        | RunEvent::PreflightPassed { .. }
        | RunEvent::PreflightFailed { .. }
        | RunEvent::Approved { .. }
        | RunEvent::PlanInvalidated { .. }
        | RunEvent::StepSucceeded { .. }
        | RunEvent::StepRetried { .. }
        | RunEvent::CancelRequested { .. } => Some(Reaction::AdvanceRun(*run)),
        RunEvent::Requested { .. }
        | RunEvent::PreflightStarted { .. }
        | RunEvent::StepStarted { .. }
        | RunEvent::PlanProduced { .. }
        | RunEvent::ApprovalRequested { .. }
        | RunEvent::Denied { .. }
        | RunEvent::ApprovalExpired { .. }
        | RunEvent::ApplyStarted { .. }
        | RunEvent::StepFailed { .. }
        | RunEvent::StepRetryScheduled { .. }
        | RunEvent::StepSkipped { .. }
        | RunEvent::Finished { .. } => None,
    }
}
