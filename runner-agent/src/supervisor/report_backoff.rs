//! Limits the repetition of rejected reports.
use std::time::{Duration, Instant};

use crate::client::ServerRejection;

/// Number of consecutive equal rejections after which a report counts as permanently rejected.
const MAX_REJECTIONS: u32 = 10;

/// Back-off of one execution whose server rejects its reports.
#[derive(Debug)]
pub(super) struct ReportBackoff {
    /// Time between two attempts.
    pause: Duration,
    /// Sequence number of the last rejected report, with the status and the problem code.
    last_rejection: Option<(u64, u16, String)>,
    rejections: u32,
    reports_at: Instant,
    log_at: Instant,
}

impl ReportBackoff {
    pub fn new(pause: Duration) -> Self {
        let now = Instant::now();
        ReportBackoff { pause, last_rejection: None, rejections: 0, reports_at: now, log_at: now }
    }

    /// Returns whether a report may be sent now.
    pub fn may_report(&self) -> bool {
        Instant::now() >= self.reports_at
    }

    /// Returns whether a log chunk may be sent now. A rejected report does not delay the log.
    pub fn may_send_log(&self) -> bool {
        Instant::now() >= self.log_at
    }

    /// Delays reports and log because the server rejects the runner itself. The rejection does not
    /// count against the report.
    pub fn runner_rejected(&mut self) {
        self.reports_at = Instant::now() + self.pause;
        self.log_at = self.reports_at;
    }

    /// Records that the server rejected a report. Returns `true` if the rejection is permanent.
    pub fn report_rejected(&mut self, seq: u64, rejection: &ServerRejection) -> bool {
        let current = Some((seq, rejection.status, rejection.code().to_owned()));
        self.rejections =
            if self.last_rejection == current { self.rejections.saturating_add(1) } else { 1 };
        self.last_rejection = current;
        self.reports_at = Instant::now() + self.pause;
        self.rejections >= MAX_REJECTIONS
    }

    /// Returns the number of consecutive equal rejections.
    pub fn rejection_count(&self) -> u32 {
        self.rejections
    }

    /// Starts again for a report that replaces the rejected one.
    pub fn reset(&mut self) {
        *self = ReportBackoff { log_at: self.log_at, ..ReportBackoff::new(self.pause) };
    }
}

#[cfg(test)]
mod tests {
    use schemas::problem::Problem;

    use super::*;

    fn rejection(status: u16, code: &str) -> ServerRejection {
        let problem = Problem::new(status, code, "No", "no");
        ServerRejection { status, problem, have: None }
    }

    #[test]
    fn only_repeated_equal_rejections_of_a_report_are_permanent() {
        let mut backoff = ReportBackoff::new(Duration::from_secs(30));
        let invalid = rejection(422, "invalid");
        for _ in 1..MAX_REJECTIONS {
            assert!(!backoff.report_rejected(3, &invalid));
        }
        // Another problem code or another report starts the count again.
        assert!(!backoff.report_rejected(3, &rejection(409, "rejected")));
        assert!(!backoff.report_rejected(4, &rejection(409, "rejected")));
        for _ in 1..MAX_REJECTIONS {
            assert!(!backoff.report_rejected(4, &invalid));
        }
        assert!(backoff.report_rejected(4, &invalid) && backoff.report_rejected(4, &invalid));
        backoff.reset();
        assert!(!backoff.report_rejected(4, &invalid));
    }

    #[test]
    fn a_rejected_report_does_not_delay_the_log() {
        let mut backoff = ReportBackoff::new(Duration::from_secs(30));
        backoff.report_rejected(1, &rejection(422, "invalid"));
        assert!(!backoff.may_report() && backoff.may_send_log());
        backoff.runner_rejected();
        assert!(!backoff.may_report() && !backoff.may_send_log());
    }
}
