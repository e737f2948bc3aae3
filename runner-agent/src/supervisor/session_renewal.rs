//! Schedules session renewals. Only a new session reconciles the open claims of the journal with
//! the server.
//!
//! The cause of a renewal can persist, for example a full disk, so renewals back off.
use std::time::{Duration, Instant};

use rand::Rng as _;

const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Maximum time, after a renewal is due, that an idle agent delays its exit for the renewal.
const MAX_EXIT_DELAY: Duration = Duration::from_secs(30);
/// Time since the previous renewal after which the back-off starts again.
const RESET_AFTER: Duration = Duration::from_secs(60);

/// Request for a new session while the current one is still valid.
#[derive(Debug, Default)]
pub(crate) struct SessionRenewal {
    due: Option<Instant>,
    /// Due time of the previous renewal.
    previous_due: Option<Instant>,
    /// Number of renewals since the back-off started.
    attempts: u32,
}

impl SessionRenewal {
    /// Requests a new session. The current session stays open until the due time, because running
    /// jobs need its polls. Returns false if a session is already requested.
    pub fn request(&mut self, now: Instant) -> bool {
        if self.due.is_some() {
            return false;
        }
        if self
            .previous_due
            .is_none_or(|former| now.saturating_duration_since(former) >= RESET_AFTER)
        {
            self.attempts = 0;
        }
        self.attempts = self.attempts.saturating_add(1);
        let ceiling = MIN_PAUSE.saturating_mul(1 << self.attempts.min(16)).min(MAX_PAUSE);
        let due = now + rand::thread_rng().gen_range(ceiling / 2..=ceiling);
        (self.due, self.previous_due) = (Some(due), Some(due));
        true
    }

    /// Returns whether a new session is requested.
    pub fn is_requested(&self) -> bool {
        self.due.is_some()
    }

    /// Returns whether the agent must delay its exit for the renewal. The delay ends
    /// [`MAX_EXIT_DELAY`] after the due time, for example if the server rejects sessions.
    pub fn delays_exit(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| now < due + MAX_EXIT_DELAY)
    }

    /// Returns whether the renewal is due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    /// Clears the request after a session was opened.
    pub fn opened(&mut self) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_reset_after_a_minute_without_requests() {
        let (mut renewal, mut now) = (SessionRenewal::default(), Instant::now());
        let mut pause = |time_without_requests: Duration| {
            now += time_without_requests;
            assert!(renewal.request(now));
            let due = renewal.due.unwrap();
            assert!(renewal.is_requested() && !renewal.is_due(due - Duration::from_millis(1)));
            assert!(renewal.is_due(due));
            assert!(renewal.delays_exit(due) && !renewal.delays_exit(due + MAX_EXIT_DELAY));
            // A second request keeps the due time of the first.
            assert!(!renewal.request(due));
            assert_eq!(renewal.due, Some(due));
            renewal.opened();
            assert!(!renewal.is_requested() && !renewal.delays_exit(due));
            let paused = due - now;
            now = due;
            paused.as_secs_f64()
        };
        for least in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0] {
            let paused = pause(Duration::from_secs(59));
            assert!((least..=least * 2.0).contains(&paused), "{least} {paused}");
        }
        assert!(pause(RESET_AFTER) <= 2.0);
    }
}
