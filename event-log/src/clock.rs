//! Where time comes from.
use std::{fmt, sync::Arc};

use chrono::{SubsecRound, Utc};
use domain::decider::Timestamp;

/// The only door through which time enters the log. Microseconds, UTC.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// A clock of the caller's making.
    pub fn of(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    /// The machine's clock.
    #[allow(clippy::disallowed_methods, reason = "this is the door")]
    pub fn system() -> Clock {
        Clock::of(Utc::now)
    }

    /// The moment it is.
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
