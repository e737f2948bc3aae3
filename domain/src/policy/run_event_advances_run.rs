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
        // The last plan of a run with `plan_all`, or its failure, allows the first change.
        | RunEvent::ApprovalRequested { .. }
        | RunEvent::StepFailed { .. }
        | RunEvent::StepSkipped { .. }
        | RunEvent::StepSucceeded { .. }
        | RunEvent::StepRetried { .. }
        | RunEvent::CancelRequested { .. } => Some(Reaction::AdvanceRun(*run)),
        RunEvent::Requested { .. }
        | RunEvent::PreflightStarted { .. }
        | RunEvent::StepStarted { .. }
        | RunEvent::PlanProduced { .. }
        | RunEvent::Denied { .. }
        | RunEvent::ApprovalExpired { .. }
        | RunEvent::ApplyStarted { .. }
        | RunEvent::StepRetryScheduled { .. }
        | RunEvent::Finished { .. } => None,
    }
}
