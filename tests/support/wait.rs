//! Waits for a condition, never for a fixed time.
use std::time::{Duration, Instant};

/// Polls until there is a value.
#[track_caller]
pub fn until_some<T>(what: &str, limit: Duration, mut check: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(started.elapsed() < limit, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Polls until the condition is true.
#[track_caller]
pub fn until(what: &str, limit: Duration, mut check: impl FnMut() -> bool) {
    until_some(what, limit, || check().then_some(()));
}
