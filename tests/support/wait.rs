//! Waiting for a condition, never for a time.
use std::time::{Duration, Instant};

/// Ask until the answer is there.
#[track_caller]
pub fn until_some<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begin.elapsed() < limit, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ask until it is so.
#[track_caller]
pub fn until(what: &str, limit: Duration, mut ask: impl FnMut() -> bool) {
    until_some(what, limit, || ask().then_some(()));
}
