//! Source of the time, which tests replace.
use std::sync::Arc;

use chrono::SubsecRound as _;
use domain::decider::Timestamp;

pub(crate) type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// System clock with a precision of microseconds.
pub fn system_clock() -> Clock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that all other code receives")]
    Arc::new(|| chrono::Utc::now().trunc_subsecs(6))
}
