//! Back-off with full jitter, so that many runners do not reconnect to a server at the same moment.
use std::time::Duration;

use rand::Rng as _;

const BASE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub struct Backoff {
    cap: Duration,
    tries: u32,
}

impl Backoff {
    pub fn new(cap: Duration) -> Self {
        Backoff { cap, tries: 0 }
    }

    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// Returns the next pause: jitter, plus the pause that the server requested.
    pub fn next(&mut self, requested: Option<Duration>) -> Duration {
        let ceiling = BASE.saturating_mul(1 << self.tries.min(16)).min(self.cap);
        self.tries = self.tries.saturating_add(1);
        let jitter = rand::thread_rng().gen_range(Duration::ZERO..=ceiling);
        // Limits a requested pause to five minutes: a longer pause is an error or an attack.
        requested
            .map_or(jitter, |requested| requested.min(Duration::from_secs(300)) + jitter.min(BASE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap() {
        let mut backoff = Backoff::new(Duration::from_secs(30));
        let pauses: Vec<_> = (0..200).map(|_| backoff.next(None)).collect();
        assert!(pauses[0] <= BASE);
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(30)));
        assert!(pauses.iter().any(|pause| *pause > Duration::from_secs(10)));
    }

    #[test]
    fn the_requested_pause_is_the_minimum() {
        let mut backoff = Backoff::new(Duration::from_secs(30));
        assert!(backoff.next(Some(Duration::from_secs(7))) >= Duration::from_secs(7));
    }
}
