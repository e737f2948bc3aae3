//! Limits how often a rejected report is sent again.
use std::time::{Duration, Instant};

use crate::client::Refused;

/// Number of consecutive equal rejections after which a report counts as permanently rejected.
const MOST: u32 = 10;

/// Back-off of one execution whose server rejects its reports.
#[derive(Debug)]
pub(super) struct Patience {
    /// Time between two attempts.
    pause: Duration,
    /// Sequence number of the last rejected report, with the status and the problem code.
    last: Option<(u64, u16, String)>,
    times: u32,
    reports_at: Instant,
    log_at: Instant,
}

impl Patience {
    pub fn new(pause: Duration) -> Self {
        let now = Instant::now();
        Patience { pause, last: None, times: 0, reports_at: now, log_at: now }
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
    pub fn unwanted(&mut self) {
        self.reports_at = Instant::now() + self.pause;
        self.log_at = self.reports_at;
    }

    /// Records that the server rejected a report. Returns `true` if the rejection is permanent.
    pub fn refused(&mut self, seq: u64, refused: &Refused) -> bool {
        let said = Some((seq, refused.status, refused.code().to_owned()));
        self.times = if self.last == said { self.times.saturating_add(1) } else { 1 };
        self.last = said;
        self.reports_at = Instant::now() + self.pause;
        self.times >= MOST
    }

    /// Returns the number of consecutive equal rejections.
    pub fn times(&self) -> u32 {
        self.times
    }

    /// Starts again for a report that replaces the rejected one.
    pub fn begin_anew(&mut self) {
        *self = Patience { log_at: self.log_at, ..Patience::new(self.pause) };
    }
}

#[cfg(test)]
mod tests {
    use schemas::problem::Problem;

    use super::*;

    fn refused(status: u16, code: &str) -> Refused {
        let problem = Problem::new(status, code, "No", "no");
        Refused { status, problem, have: None }
    }

    #[test]
    fn only_the_same_refusal_of_the_same_report_again_and_again_is_final() {
        let mut patience = Patience::new(Duration::from_secs(30));
        let invalid = refused(422, "invalid");
        for _ in 1..MOST {
            assert!(!patience.refused(3, &invalid));
        }
        // Another problem code or another report starts the count again.
        assert!(!patience.refused(3, &refused(409, "rejected")));
        assert!(!patience.refused(4, &refused(409, "rejected")));
        for _ in 1..MOST {
            assert!(!patience.refused(4, &invalid));
        }
        assert!(patience.refused(4, &invalid) && patience.refused(4, &invalid));
        patience.begin_anew();
        assert!(!patience.refused(4, &invalid));
    }

    #[test]
    fn a_report_that_is_refused_does_not_hold_up_the_log() {
        let mut patience = Patience::new(Duration::from_secs(30));
        patience.refused(1, &refused(422, "invalid"));
        assert!(!patience.may_report() && patience.may_send_log());
        patience.unwanted();
        assert!(!patience.may_report() && !patience.may_send_log());
    }
}
