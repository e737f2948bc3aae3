//! Waits between attempts.

use std::time::Duration;

use rand::Rng;
use tokio::time::Instant;

use super::RegistryError;

/// Upper bound of the first wait.
const FIRST: Duration = Duration::from_millis(200);
/// Longest wait between two attempts.
const LONGEST: Duration = Duration::from_secs(10);

/// Repeats attempts with growing waits, for a limited time without progress.
pub(super) struct Retry {
    wait: Duration,
    limit: Option<Duration>,
    since: Instant,
}

impl Retry {
    /// Returns a series of attempts. Without a limit, the caller must stop it at the deadline.
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Retry { wait: FIRST, limit, since: Instant::now() }
    }

    /// Records progress: the next failure starts a new series.
    pub(super) fn reset(&mut self) {
        (self.wait, self.since) = (FIRST, Instant::now());
    }

    /// Waits before the next attempt, at least as long as the registry requested.
    ///
    /// # Errors
    /// Returns `error` if the wait would exceed the limit.
    pub(super) async fn pause(
        &mut self,
        requested: Option<Duration>,
        error: RegistryError,
    ) -> Result<(), RegistryError> {
        let jitter = rand::thread_rng().gen_range(0.5..1.0);
        let wait = self.wait.mul_f64(jitter).max(requested.unwrap_or_default());
        if self.limit.is_some_and(|limit| self.since.elapsed() + wait > limit) {
            return Err(error);
        }
        tokio::time::sleep(wait).await;
        self.wait = (self.wait * 2).min(LONGEST);
        Ok(())
    }
}
