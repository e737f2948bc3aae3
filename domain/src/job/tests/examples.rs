//! Golden test of an example payload of every event.
use super::{walk::reread, *};

/// Returns the next example. The match makes the compiler report an event without an example.
fn after(event: &JobEvent) -> Option<JobEvent> {
    let (execution, loss_reason, seq) = (A, DeadlinePassed, 2);
    let outputs = || [("bucket_arn".into(), "arn:aws:s3:::shop".into())].into();
    Some(match event {
        JobEvent::Queued(_) => claimed_by(A, 1),
        JobEvent::Claimed { .. } => JobEvent::Started { execution, seq: 1, isolation: None },
        JobEvent::Started { .. } => phase_at(seq, "init"),
        JobEvent::PhaseEntered { .. } => JobEvent::PlanProduced { execution, seq, plan: plan() },
        JobEvent::PlanProduced { .. } => {
            JobEvent::OutputsReported { execution, seq, outputs: outputs() }
        }
        JobEvent::OutputsReported { .. } => {
            JobEvent::StateReported { execution, seq, state: state_version() }
        }
        JobEvent::StateReported { .. } => {
            JobEvent::ArtifactPushed { execution, seq, artifact: artifact() }
        }
        JobEvent::ArtifactPushed { .. } => {
            JobEvent::ChecksReported { execution, seq, checks: checks() }
        }
        JobEvent::ChecksReported { .. } => JobEvent::Disconnected { execution },
        JobEvent::Disconnected { .. } => JobEvent::Reattached { execution },
        JobEvent::Reattached { .. } => requeued_event(Some(NeverSpawned)),
        JobEvent::Requeued { .. } => JobEvent::OutcomeUnknown { execution, loss_reason },
        JobEvent::OutcomeUnknown { .. } => resolved_by(execution, ANN, Resolution::Failed),
        JobEvent::OutcomeResolved { .. } => cancel_requested(true),
        JobEvent::CancelRequested { .. } => JobEvent::CancelUnconfirmed { execution },
        JobEvent::CancelUnconfirmed { .. } => succeeded_at(3),
        JobEvent::Succeeded { .. } => failed_at(3),
        JobEvent::Failed { .. } => cancelled_at(3),
        JobEvent::Cancelled { .. } => JobEvent::Lost { execution, loss_reason },
        JobEvent::Lost { .. } => JobEvent::LogFinalized(log(execution)),
        JobEvent::LogFinalized(_) => JobEvent::LogDiverged { execution, offset_bytes: 512 },
        JobEvent::LogDiverged { .. } => late_result(execution, 4),
        JobEvent::LateResultReported { .. } => return None,
    })
}

#[test]
fn every_event_has_an_example_and_no_example_is_dropped() {
    crate::testing::examples::<Job>(JobEvent::Queued(work(Mutating)), after);
}

#[test]
fn absent_fields_are_omitted() {
    let unclaimed = JobEvent::Cancelled {
        execution: None,
        seq: None,
        forced: false,
        signed: None,
        not_ended: vec![],
    };
    let requeued_text = format!(r#"{{"type":"requeued","execution":"{A}","attempt":2}}"#);
    let text = r#"{"type":"cancelled","forced":false}"#;
    assert_eq!(serde_json::to_string(&unclaimed).unwrap(), text);
    assert_eq!(serde_json::to_string(&requeued_event(None)).unwrap(), requeued_text);
    assert_eq!(
        [reread(&unclaimed), reread(&requeued_event(None))],
        [unclaimed, requeued_event(None)]
    );
}
