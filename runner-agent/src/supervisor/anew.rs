//! Sessions that are opened anew because only a session settles what the journal has open. What makes one necessary
//! may be there again at once (a disk that takes nothing), so there are pauses between them.
use std::time::{Duration, Instant};

use rand::Rng as _;

const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);
/// So long after it was due an agent that has nothing else to do waits for it.
const WORTH: Duration = Duration::from_secs(30);
/// After so much quiet the next one is the first again.
const QUIET: Duration = Duration::from_secs(60);

/// When the next session is opened although this one is well.
#[derive(Debug, Default)]
pub(crate) struct Anew {
    due: Option<Instant>,
    /// When the last one was due.
    former: Option<Instant>,
    /// How many there were without quiet between them.
    rounds: u32,
}

impl Anew {
    /// Another session is needed. Until it is open this one goes on: what runs needs its polls.
    pub fn ask(&mut self, now: Instant) {
        if self.due.is_some() {
            return;
        }
        if self.former.is_none_or(|former| now.saturating_duration_since(former) >= QUIET) {
            self.rounds = 0;
        }
        self.rounds = self.rounds.saturating_add(1);
        let ceiling = LEAST.saturating_mul(1 << self.rounds.min(16)).min(MOST);
        let due = now + rand::thread_rng().gen_range(ceiling / 2..=ceiling);
        (self.due, self.former) = (Some(due), Some(due));
    }

    /// Whether one is needed.
    pub fn is_asked(&self) -> bool {
        self.due.is_some()
    }

    /// Whether an agent's end has to wait for it. A server that refuses it does not hold up the end for ever.
    pub fn holds_up(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| now < due + WORTH)
    }

    /// Whether it is time for it.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    /// A session was opened.
    pub fn opened(&mut self) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_from_a_second_to_a_minute_and_begin_again_after_a_minute_of_quiet() {
        let (mut anew, mut now) = (Anew::default(), Instant::now());
        let mut pause = |quiet: Duration| {
            now += quiet;
            anew.ask(now);
            let due = anew.due.unwrap();
            assert!(anew.is_asked() && !anew.is_due(due - Duration::from_millis(1)));
            assert!(anew.is_due(due));
            assert!(anew.holds_up(due) && !anew.holds_up(due + WORTH));
            // Who asks while one is due asks for the same one.
            anew.ask(due);
            assert_eq!(anew.due, Some(due));
            anew.opened();
            assert!(!anew.is_asked() && !anew.holds_up(due));
            let paused = due - now;
            now = due;
            paused.as_secs_f64()
        };
        for least in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0] {
            let paused = pause(Duration::from_secs(59));
            assert!((least..=least * 2.0).contains(&paused), "{least} {paused}");
        }
        assert!(pause(QUIET) <= 2.0);
    }
}
