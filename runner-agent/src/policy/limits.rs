//! Limits of every job, regardless of its manifest.
use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// Longest grace period if the policy sets none. It exceeds the five minutes that a deploy has to
/// write its state.
const MAX_GRACE: Duration = Duration::from_secs(10 * 60);
/// Longest duration of a job if the policy sets none.
const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);
/// Longest wait for an approval if the policy sets none.
const APPROVAL: Duration = Duration::from_secs(30 * 60);

/// Limits that the runner enforces on every job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest time from the stop signal to SIGKILL.
    pub grace: Duration,
    /// Longest time from the claim to the deadline.
    pub duration: Duration,
    /// Longest wait for an approval.
    pub approval: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { grace: MAX_GRACE, duration: MAX_DURATION, approval: APPROVAL }
    }
}

/// Reads a duration: a whole number and its unit, such as `90s`, `10m`, `4h` or `1d`.
pub(super) fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    let wrong = || {
        let why = format!("{text:?} is not a duration such as 90s, 10m, 4h or 1d");
        serde::de::Error::custom(why)
    };
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    Ok(Some(Duration::from_secs(u64::from(number) * seconds)))
}

/// Reads a size: a whole number and its unit, such as `512MiB` or `4GiB`.
pub(super) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(from)?;
    let parsed = [("MiB", 20), ("GiB", 30)].into_iter().find_map(|(unit, shift)| {
        let number: u32 = text.strip_suffix(unit)?.parse().ok()?;
        (number > 0).then_some(u64::from(number) << shift)
    });
    let why = || serde::de::Error::custom(format!("{text:?} is not a size such as 512MiB or 4GiB"));
    parsed.map(Some).ok_or_else(why)
}
