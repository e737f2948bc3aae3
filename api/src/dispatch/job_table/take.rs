//! Applies an event to a tracked job.
use std::time::Duration;

use domain::{decider::Decider as _, ids::ExecutionId, job::JobEvent};
use tokio::time::Instant;

use super::{JobEventRecord, OpenLog, TrackedJob};

impl TrackedJob {
    pub(super) fn apply(&mut self, domain_event: JobEventRecord, now: Instant) {
        self.sequence = domain_event.sequence;
        match &domain_event.event {
            JobEvent::Queued(work) => {
                self.expires_at = now + Duration::from_millis(work.queue_ttl_ms);
            }
            JobEvent::Claimed { runner, deadline, .. } => {
                (self.last_contact, self.last_runner) = (now, Some(*runner));
                self.expires_at =
                    now + (*deadline - domain_event.recorded_at).to_std().unwrap_or_default();
                self.claim = domain_event.claim;
            }
            JobEvent::Requeued { execution, .. } => {
                (self.order, self.queued_at) = (domain_event.position, domain_event.recorded_at);
                let queue_ttl = self.queue_ttl().and_then(|wait| wait.to_std().ok());
                self.expires_at = now + queue_ttl.unwrap_or_default();
                self.end_execution(Some(*execution), now);
            }
            JobEvent::OutcomeUnknown { execution, .. }
            | JobEvent::Succeeded { execution, .. }
            | JobEvent::Lost { execution, .. } => self.end_execution(Some(*execution), now),
            JobEvent::Failed { execution, .. } | JobEvent::Cancelled { execution, .. } => {
                self.end_execution(*execution, now);
            }
            // A second, forced request restarts the timeout.
            JobEvent::CancelRequested { .. } => self.cancel_since = Some(now),
            JobEvent::CancelUnconfirmed { .. } => self.cancel_since = None,
            JobEvent::LogFinalized(log) => {
                self.open_logs.retain(|open| open.execution != log.execution);
            }
            JobEvent::Started { .. }
            | JobEvent::PhaseEntered { .. }
            | JobEvent::PlanProduced { .. }
            | JobEvent::OutputsReported { .. }
            | JobEvent::StateReported { .. }
            | JobEvent::ArtifactPushed { .. }
            | JobEvent::ChecksReported { .. }
            | JobEvent::Disconnected { .. }
            | JobEvent::Reattached { .. }
            | JobEvent::OutcomeResolved { .. }
            | JobEvent::LogDiverged { .. }
            | JobEvent::LateResultReported { .. } => {}
        }
        self.job.evolve(domain_event.event);
    }

    /// Records the end of an execution, whose log may still be arriving.
    fn end_execution(&mut self, execution: Option<ExecutionId>, now: Instant) {
        self.cancel_since = None;
        let known = |execution| self.open_logs.iter().any(|open| open.execution == execution);
        if let Some(execution) =
            execution.filter(|over| !self.is_log_finalized(*over) && !known(*over))
        {
            self.open_logs.push(OpenLog { execution, quiet_since: now, length: 0 });
        }
    }
}
