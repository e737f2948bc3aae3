//! Waits between attempts.

use std::{sync::Arc, time::Duration};

use rand::Rng;
use tokio::time::Instant;

use super::RegistryError;

/// Upper bound of the first wait.
const FIRST: Duration = Duration::from_millis(200);
/// Longest wait between two attempts.
const LONGEST: Duration = Duration::from_secs(10);
/// Longest wait that a registry can request.
const LONGEST_REQUESTED: Duration = Duration::from_secs(5 * 60);

/// Receives the cause when a failed attempt is repeated.
pub type Observer = Arc<dyn Fn(&str) + Send + Sync>;

/// Repeats attempts with growing waits, for a limited time without progress.
pub(crate) struct Retry {
    wait: Duration,
    limit: Option<Duration>,
    /// Time of the first failure of the series. A long attempt before it is no failure.
    since: Option<Instant>,
    observer: Option<Observer>,
    /// Cause that the observer knows.
    observed: Option<String>,
}

impl Retry {
    /// Returns a series of attempts. Without a limit, the caller must stop it at the deadline.
    pub(crate) fn new(limit: Option<Duration>, observer: Option<Observer>) -> Self {
        Retry { wait: FIRST, limit, since: None, observer, observed: None }
    }

    /// Records progress: the next failure starts a new series.
    pub(crate) fn reset(&mut self) {
        (self.wait, self.since) = (FIRST, None);
    }

    /// Waits before the next attempt, at least as long as the registry requested.
    ///
    /// # Errors
    /// Returns `error` if the wait would exceed the limit.
    pub(crate) async fn pause(
        &mut self,
        requested: Option<Duration>,
        error: RegistryError,
    ) -> Result<(), RegistryError> {
        let jitter = rand::thread_rng().gen_range(0.5..1.0);
        let requested = requested.unwrap_or_default().min(LONGEST_REQUESTED);
        let wait = self.wait.mul_f64(jitter).max(requested);
        if self.is_over(Instant::now(), wait) {
            return Err(error);
        }
        self.observe(error.to_string());
        tokio::time::sleep(wait).await;
        self.wait = (self.wait * 2).min(LONGEST);
        Ok(())
    }

    /// Reports a cause once.
    fn observe(&mut self, cause: String) {
        if let Some(observer) = &self.observer
            && self.observed.as_ref() != Some(&cause)
        {
            observer(&cause);
            self.observed = Some(cause);
        }
    }

    /// Returns true if a wait after a failure at this time exceeds the limit of the series.
    fn is_over(&mut self, now: Instant, wait: Duration) -> bool {
        let since = *self.since.get_or_insert(now);
        self.limit.is_some_and(|limit| now.duration_since(since) + wait > limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_begins_with_the_first_failure() {
        let (limit, wait) = (Duration::from_secs(40), Duration::from_secs(1));
        let (mut retry, start) = (Retry::new(Some(limit), None), Instant::now());
        let failed_after = |seconds| start + Duration::from_secs(seconds);
        // An upload breaks after ten minutes.
        assert!(!retry.is_over(failed_after(600), wait));
        assert!(!retry.is_over(failed_after(639), wait));
        assert!(retry.is_over(failed_after(640), wait));
        retry.reset();
        assert!(!retry.is_over(failed_after(2000), wait));
    }

    #[tokio::test]
    async fn the_longest_requested_wait_is_no_panic() {
        let error = || RegistryError::Task("x".into());
        let mut retry = Retry::new(Some(Duration::from_secs(40)), None);
        assert!(retry.pause(Some(Duration::MAX), error()).await.is_err());
    }
}
