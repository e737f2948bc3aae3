use std::{fmt, sync::Arc};

use chrono::{SubsecRound, Utc};
use domain::decider::Timestamp;

/// The only source of time in the log, in UTC.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// Creates a clock from a function.
    pub fn of(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    /// The clock of the operating system.
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
    pub fn system() -> Clock {
        Clock::of(Utc::now)
    }

    /// Returns the current time, truncated to microseconds.
    pub fn now(&self) -> Timestamp {
        (self.0)().trunc_subsecs(6)
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
