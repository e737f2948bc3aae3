//! Golden test of an example payload of every event.
use super::*;

/// Returns the next example. The match makes the compiler report an event without an example.
fn after(event: &RunEvent) -> Option<RunEvent> {
    let (step, by, reason) = (SANDBOX, ANN, "looks right".to_string());
    let digest = digest(1);
    Some(match event {
        RunEvent::Requested { .. } => {
            let action = plan::action(TOP, "seed".into(), vec![SANDBOX]);
            RunEvent::Planned { steps: vec![super::step(SANDBOX, &[]), action], position: 7 }
        }
        RunEvent::Planned { .. } => RunEvent::PreflightStarted { job: J1 },
        RunEvent::PreflightStarted { .. } => preflights::passed(),
        RunEvent::PreflightPassed { .. } => preflights::failed(),
        RunEvent::PreflightFailed { .. } => started(SANDBOX, J1),
        RunEvent::StepStarted { .. } => produced(SANDBOX, J1, 1),
        RunEvent::PlanProduced { .. } => approval_requested(SANDBOX, 1),
        RunEvent::ApprovalRequested { .. } => approved(SANDBOX, 1),
        RunEvent::Approved { .. } => RunEvent::Denied { step, digest, by, reason },
        RunEvent::Denied { .. } => RunEvent::ApprovalExpired { step, digest },
        RunEvent::ApprovalExpired { .. } => RunEvent::PlanInvalidated { step, digest, reason },
        RunEvent::PlanInvalidated { .. } => RunEvent::ApplyStarted { step, job: J2 },
        RunEvent::ApplyStarted { .. } => succeeded(SANDBOX),
        RunEvent::StepSucceeded { .. } => failed(SANDBOX),
        RunEvent::StepFailed { .. } => RunEvent::StepRetryScheduled {
            step,
            attempt: 1,
            reason: StepFailure::JobFailed,
            detail: "exit 1".into(),
            not_before: later(),
        },
        RunEvent::StepRetryScheduled { .. } => skipped(SANDBOX, Skip::Blocked),
        RunEvent::StepSkipped { .. } => RunEvent::StepRetried { step, by, reason: Some(reason) },
        RunEvent::StepRetried { .. } => RunEvent::CancelRequested { by, reason, force: false },
        RunEvent::CancelRequested { .. } => run_finished(Outcome::Succeeded),
        RunEvent::Finished { .. } => return None,
    })
}

#[test]
fn every_event_has_an_example_and_no_example_is_dropped() {
    crate::testing::examples::<Run>(planned(diamond()).remove(0), after);
}
