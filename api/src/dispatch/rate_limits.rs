//! Rate limits of runner calls.
use std::{collections::HashMap, time::Duration};

use domain::ids::RunnerId;
use tokio::time::Instant;

/// Kinds of calls with separate limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CallKind {
    /// Polls: 2 per second.
    Poll,
    /// Log chunks: 20 per second.
    Log,
    /// Reports, and all other calls about jobs: 20 per second.
    Report,
    /// New identity keys: one per minute. Each key stays in the log permanently.
    Rekey,
}

impl CallKind {
    fn per_second(self) -> f64 {
        match self {
            CallKind::Poll => 2.0,
            CallKind::Log | CallKind::Report => 20.0,
            CallKind::Rekey => 1.0 / 60.0,
        }
    }

    /// Burst size. Many short jobs cause legitimate bursts.
    fn burst(self) -> f64 {
        match self {
            CallKind::Poll => 60.0,
            CallKind::Log | CallKind::Report => 200.0,
            CallKind::Rekey => 5.0,
        }
    }
}

/// Interval between records of forged reports per runner, so that a runner cannot fill the log with
/// such records.
const FORGERY_INTERVAL: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(crate) struct RateLimits {
    buckets: HashMap<(RunnerId, CallKind), (Instant, f64)>,
    /// Forged reports per runner: their number since the last record, and the time of that record.
    forgeries: HashMap<RunnerId, (u32, Option<Instant>)>,
}

impl RateLimits {
    /// Counts a runner's report on a job that the runner does not own. Returns the number of
    /// attempts if they are due to be recorded.
    pub(crate) fn count_forgery(&mut self, runner: RunnerId, now: Instant) -> Option<u32> {
        let (attempts, recorded) = self.forgeries.entry(runner).or_default();
        *attempts = attempts.saturating_add(1);
        if recorded
            .is_some_and(|recorded| now.saturating_duration_since(recorded) < FORGERY_INTERVAL)
        {
            return None;
        }
        *recorded = Some(now);
        Some(std::mem::take(attempts))
    }

    /// Counts one call. Returns the seconds to wait as `Err` if the limit is exceeded.
    pub(crate) fn acquire(
        &mut self,
        runner: RunnerId,
        calls: CallKind,
        now: Instant,
    ) -> Result<(), u64> {
        let (at, tokens) = self.buckets.entry((runner, calls)).or_insert((now, calls.burst()));
        let gained = now.saturating_duration_since(*at).as_secs_f64() * calls.per_second();
        (*at, *tokens) = (now, (*tokens + gained).min(calls.burst()));
        if *tokens >= 1.0 {
            *tokens -= 1.0;
            Ok(())
        } else {
            // Limited to a minute, so that the cast loses neither sign nor size.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the value is between 1 and 60"
            )]
            Err((((1.0 - *tokens) / calls.per_second()).ceil() as u64).clamp(1, 60))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner() -> RunnerId {
        "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn forgeries_are_recorded_at_most_every_ten_minutes() {
        let (mut rates, now) = (RateLimits::default(), Instant::now());
        assert_eq!(rates.count_forgery(runner(), now), Some(1));
        for _ in 0..1_000 {
            assert_eq!(rates.count_forgery(runner(), now + Duration::from_secs(599)), None);
        }
        assert_eq!(rates.count_forgery(runner(), now + Duration::from_secs(600)), Some(1_001));
    }

    #[tokio::test(start_paused = true)]
    async fn runner_that_exceeds_its_rate_must_wait() {
        let (mut rates, now) = (RateLimits::default(), Instant::now());
        for _ in 0..60 {
            assert_eq!(rates.acquire(runner(), CallKind::Poll, now), Ok(()));
        }
        assert_eq!(rates.acquire(runner(), CallKind::Poll, now), Err(1));
        assert_eq!(
            rates.acquire(runner(), CallKind::Log, now),
            Ok(()),
            "other calls have their own"
        );
        assert_eq!(rates.acquire(runner(), CallKind::Poll, now + Duration::from_secs(1)), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn key_changes_of_a_runner_are_limited() {
        let (mut rates, now) = (RateLimits::default(), Instant::now());
        for _ in 0..5 {
            assert_eq!(rates.acquire(runner(), CallKind::Rekey, now), Ok(()));
        }
        assert_eq!(rates.acquire(runner(), CallKind::Rekey, now), Err(60));
        let later = now + Duration::from_secs(45);
        assert_eq!(rates.acquire(runner(), CallKind::Rekey, later), Err(15));
        assert_eq!(
            rates.acquire(runner(), CallKind::Rekey, later + Duration::from_secs(16)),
            Ok(())
        );
    }
}
