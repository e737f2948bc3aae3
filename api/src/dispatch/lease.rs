//! The ladder of silence: connected, suspect, disconnected, and then what the class allows.
use std::time::Duration;

use super::Timing;

/// What the server knows of an execution when it asks what its silence means.
#[derive(Debug, Clone, Copy)]
pub struct Silence {
    /// Since the last word.
    pub silent: Duration,
    /// Since its deadline; `None` before.
    pub overdue: Option<Duration>,
    /// Whether the job has heard that it is disconnected.
    pub disconnected: bool,
    /// Whether the work may simply be repeated.
    pub pure: bool,
}

/// What has to be said to the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// No word for a whole lease.
    Disconnected,
    /// Pure work, silent for so long that it is started elsewhere.
    SilentTooLong,
    /// The deadline is over, and the time to stop as well.
    DeadlinePassed,
}

/// The next edge, if it is due. Each is said to the job until the job has taken it.
pub fn edge(silence: Silence, timing: &Timing) -> Option<Edge> {
    let patience = if silence.disconnected { timing.overtime_silent } else { timing.overtime };
    if silence.overdue.is_some_and(|overdue| overdue >= patience) {
        Some(Edge::DeadlinePassed)
    } else if !silence.disconnected && silence.silent >= timing.lease {
        Some(Edge::Disconnected)
    } else if silence.disconnected && silence.pure && silence.silent >= timing.lost {
        Some(Edge::SilentTooLong)
    } else {
        None
    }
}

/// Whether the silence is long enough to be shown, and not yet an event.
pub fn is_suspect(silent: Duration, timing: &Timing) -> bool {
    silent >= timing.suspect
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(seconds: u64) -> Silence {
        let silent = Duration::from_secs(seconds);
        Silence { silent, overdue: None, disconnected: false, pure: false }
    }

    fn due(silence: Silence) -> Option<Edge> {
        edge(silence, &Timing::default())
    }

    #[test]
    fn a_silence_is_first_shown_and_then_an_event() {
        assert_eq!(due(silent(59)), None);
        assert!(is_suspect(Duration::from_secs(45), &Timing::default()));
        assert_eq!(due(silent(60)), Some(Edge::Disconnected));
    }

    #[test]
    fn pure_work_is_given_up_after_three_minutes() {
        let pure = |seconds| Silence { disconnected: true, pure: true, ..silent(seconds) };
        assert_eq!(due(pure(179)), None);
        assert_eq!(due(pure(180)), Some(Edge::SilentTooLong));
    }

    #[test]
    fn work_that_changes_things_is_waited_for_until_its_deadline() {
        let gone = Silence { disconnected: true, ..silent(86_400) };
        assert_eq!(due(gone), None);
        let overdue = |seconds| Silence { overdue: Some(Duration::from_secs(seconds)), ..gone };
        assert_eq!(due(overdue(59)), None);
        assert_eq!(due(overdue(60)), Some(Edge::DeadlinePassed));
    }

    #[test]
    fn who_still_talks_gets_time_to_stop_after_the_deadline() {
        let overdue =
            |seconds| Silence { overdue: Some(Duration::from_secs(seconds)), ..silent(0) };
        assert_eq!(due(overdue(599)), None);
        assert_eq!(due(overdue(600)), Some(Edge::DeadlinePassed));
    }
}
