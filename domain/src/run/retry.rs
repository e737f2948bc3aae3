//! Automatic retries of failed steps: limit and back-off.
use chrono::TimeDelta;

use super::{Run, RunEvent, StepState};
use crate::{actor::Actor, decider::Timestamp, ids::StepId};

/// Back-off before the first automatic retry, in seconds. The back-off doubles with each retry, up
/// to [`LONGEST_BACKOFF_S`].
const FIRST_BACKOFF_S: i64 = 5;
/// Maximum back-off, in seconds.
const LONGEST_BACKOFF_S: i64 = 300;

impl Run {
    /// Returns the number and the earliest start of the next automatic retry. `None` if the run is
    /// being cancelled or the config allows no more retries.
    pub(super) fn next_retry(&self, step: StepId, now: Timestamp) -> Option<(u32, Timestamp)> {
        let at = self.step(step).filter(|_| self.cancel.is_none())?;
        let attempt = at.retries.saturating_add(1);
        let is_allowed = attempt <= at.spec.options.max_auto_retries;
        let not_before = now.checked_add_signed(backoff(at.retries))?;
        is_allowed.then_some((attempt, not_before))
    }

    /// Starts a step again if the retry with this number is scheduled and due. Otherwise changes
    /// nothing.
    pub(super) fn start_retry(&self, step: StepId, attempt: u32, now: Timestamp) -> Vec<RunEvent> {
        let scheduled = self.step(step).filter(|at| at.retries == attempt);
        let is_due = scheduled.is_some_and(|at| match at.state {
            StepState::RetryScheduled { not_before } => not_before <= now,
            StepState::Waiting
            | StepState::Planning { .. }
            | StepState::AwaitingApproval { .. }
            | StepState::Approved { .. }
            | StepState::Applying { .. }
            | StepState::Executing { .. }
            | StepState::Succeeded { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => false,
        });
        let (by, reason) = (Actor::Timer("auto_retry".into()), None);
        if is_due { vec![RunEvent::StepRetried { step, by, reason }] } else { vec![] }
    }
}

fn backoff(retries: u32) -> TimeDelta {
    let doubled = 1_i64.checked_shl(retries.min(16)).unwrap_or(i64::MAX);
    TimeDelta::seconds(FIRST_BACKOFF_S.saturating_mul(doubled).min(LONGEST_BACKOFF_S))
}
