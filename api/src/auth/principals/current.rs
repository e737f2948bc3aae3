//! Age of the server's knowledge of principals and revocations. A server that cannot read the log
//! misses revocations by other servers. When its knowledge is older than [`MAX_AGE`], it rejects
//! all callers until it can read the log again.
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use event_log::EventLog;

use super::PrincipalCache;
use crate::problem::{Code, Problem};

/// Maximum time since the cache was last known to be up to date.
pub(super) const MAX_AGE: Duration = Duration::from_secs(10);

/// Last time at which the cache was known to be up to date, and the sample that advances it.
#[derive(Default)]
pub(super) struct Current(Mutex<Option<Sample>>);

#[derive(Clone, Copy)]
struct Sample {
    /// Last time at which the cache was known to be up to date.
    known_at: Instant,
    /// Time of a later read of the head; `position` is its result.
    read_at: Instant,
    position: u64,
}

impl PrincipalCache {
    /// Returns the age of the cache: the time since the cache was known to be up to date. Call this
    /// after each change of the position. Under load, the cache rarely reaches the current head.
    /// This function therefore compares the cache with an earlier sample of the head. It takes a new
    /// sample when the cache has reached the last one.
    pub(crate) fn age(&self, log: &EventLog) -> Duration {
        let mut sample = self.current.0.lock().unwrap_or_else(PoisonError::into_inner);
        let position = self.position();
        let next = || (log.read_at(), log.position());
        let mut known = sample.unwrap_or_else(|| {
            let (read_at, at) = next();
            // At the first call, the server has just opened and loaded the log.
            Sample { known_at: read_at, read_at, position: at }
        });
        if position >= known.position {
            let (read_at, at) = next();
            let known_at = if position >= at { read_at } else { known.read_at };
            known = Sample { known_at, read_at, position: at };
        }
        *sample = Some(known);
        known.known_at.elapsed()
    }

    /// Rejects the request if the age of the cache exceeds [`MAX_AGE`].
    ///
    /// # Errors
    /// 503 `log_stale`.
    pub(crate) fn check_current(&self, log: &EventLog) -> Result<(), Problem> {
        let age = self.age(log);
        if age <= MAX_AGE {
            return Ok(());
        }
        let (age, most) = (age.as_secs(), MAX_AGE.as_secs());
        let detail = format!(
            "request rejected: this server last read the log {age} s ago (limit {most} s) \
             and may have missed revoked tokens; check its connection to the database, or use \
             another server"
        );
        Err(Problem::new(Code::LogStale, detail).retry_after(2))
    }
}
