//! Back-off with full jitter, so that many runners do not reconnect to a server at the same moment.
use std::time::Duration;

use rand::Rng as _;

const BASE: Duration = Duration::from_millis(200);

/// Back-off of one call.
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
    pub fn next(&mut self, asked: Option<Duration>) -> Duration {
        let ceiling = BASE.saturating_mul(1 << self.tries.min(16)).min(self.cap);
        self.tries = self.tries.saturating_add(1);
        let jitter = rand::thread_rng().gen_range(Duration::ZERO..=ceiling);
        // Limits a requested pause to five minutes: a longer pause is an error or an attack.
        asked.map_or(jitter, |asked| asked.min(Duration::from_secs(300)) + jitter.min(BASE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_not_beyond() {
        let mut backoff = Backoff::new(Duration::from_secs(30));
        let pauses: Vec<_> = (0..200).map(|_| backoff.next(None)).collect();
        assert!(pauses[0] <= BASE);
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(30)));
        assert!(pauses.iter().any(|pause| *pause > Duration::from_secs(10)));
    }

    #[test]
    fn what_the_server_asks_for_is_the_least() {
        let mut backoff = Backoff::new(Duration::from_secs(30));
        assert!(backoff.next(Some(Duration::from_secs(7))) >= Duration::from_secs(7));
    }
}
