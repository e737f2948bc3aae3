//! Liveness of executions: connected, suspect, disconnected, and then a result that depends on the
//! class of the work.
use std::time::Duration;

use super::Timing;

/// Input of the liveness decision for one execution.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContactState {
    /// Time since the last contact.
    pub since_contact: Duration,
    /// Time since the deadline, or `None` before it.
    pub overdue: Option<Duration>,
    /// True if the job has recorded the disconnect.
    pub disconnected: bool,
    /// True if the work can be repeated without side effects.
    pub pure: bool,
}

/// Liveness transition that the job must record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LivenessTransition {
    /// No contact for a full lease.
    Disconnected,
    /// Pure work had no contact for [`Timing::lost`].
    ContactTimeout,
    /// The deadline and the grace period after it have passed.
    DeadlinePassed,
}

/// Returns the transition that is due. Returns the same transition again until the job has recorded
/// it.
pub(super) fn transition(contact: ContactState, timing: &Timing) -> Option<LivenessTransition> {
    let overtime =
        if contact.disconnected { timing.overtime_disconnected } else { timing.overtime };
    if contact.overdue.is_some_and(|overdue| overdue >= overtime) {
        Some(LivenessTransition::DeadlinePassed)
    } else if !contact.disconnected && contact.since_contact >= timing.lease {
        Some(LivenessTransition::Disconnected)
    } else if contact.disconnected && contact.pure && contact.since_contact >= timing.lost {
        Some(LivenessTransition::ContactTimeout)
    } else {
        None
    }
}

/// Returns true if the last contact is long enough ago to display the execution as suspect. No
/// event records this state.
pub(crate) fn is_suspect(since_contact: Duration, timing: &Timing) -> bool {
    since_contact >= timing.suspect
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_contact(seconds: u64) -> ContactState {
        let since_contact = Duration::from_secs(seconds);
        ContactState { since_contact, overdue: None, disconnected: false, pure: false }
    }

    fn due(contact: ContactState) -> Option<LivenessTransition> {
        transition(contact, &Timing::default())
    }

    #[test]
    fn missing_contact_is_displayed_before_it_is_recorded() {
        assert_eq!(due(without_contact(59)), None);
        assert!(is_suspect(Duration::from_secs(45), &Timing::default()));
        assert_eq!(due(without_contact(60)), Some(LivenessTransition::Disconnected));
    }

    #[test]
    fn pure_work_is_lost_after_three_minutes() {
        let pure =
            |seconds| ContactState { disconnected: true, pure: true, ..without_contact(seconds) };
        assert_eq!(due(pure(179)), None);
        assert_eq!(due(pure(180)), Some(LivenessTransition::ContactTimeout));
    }

    #[test]
    fn mutating_work_is_lost_only_after_its_deadline() {
        let disconnected = ContactState { disconnected: true, ..without_contact(86_400) };
        assert_eq!(due(disconnected), None);
        let overdue =
            |seconds| ContactState { overdue: Some(Duration::from_secs(seconds)), ..disconnected };
        assert_eq!(due(overdue(59)), None);
        assert_eq!(due(overdue(60)), Some(LivenessTransition::DeadlinePassed));
    }

    #[test]
    fn connected_execution_gets_time_to_stop_after_its_deadline() {
        let overdue = |seconds| ContactState {
            overdue: Some(Duration::from_secs(seconds)),
            ..without_contact(0)
        };
        assert_eq!(due(overdue(599)), None);
        assert_eq!(due(overdue(600)), Some(LivenessTransition::DeadlinePassed));
    }
}
