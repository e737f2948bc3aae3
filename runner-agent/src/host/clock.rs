//! Clocks of the host, and the estimated clock of the server.
use std::{
    fs, io,
    sync::atomic::{AtomicI64, Ordering},
    time::SystemTime,
};

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};

/// Milliseconds by which the server's clock is ahead of the host's clock.
static AHEAD_MS: AtomicI64 = AtomicI64::new(0);

/// Returns the time of the host's clock, in whole microseconds as in its text form.
pub fn now() -> DateTime<Utc> {
    DateTime::<Utc>::from(system_time()).trunc_subsecs(6)
}

/// Returns the time of the host's clock, for comparison with the times of files.
#[expect(clippy::disallowed_methods, reason = "this is the clock that all other code uses")]
pub(crate) fn system_time() -> SystemTime {
    SystemTime::now()
}

/// Returns the estimated time of the server's clock, for times that the server compares.
pub fn server_now() -> DateTime<Utc> {
    let ahead = TimeDelta::try_milliseconds(AHEAD_MS.load(Ordering::Relaxed)).unwrap_or_default();
    // Ignores an offset that exceeds the range of the calendar.
    now().checked_add_signed(ahead).unwrap_or_else(now)
}

/// Corrects the estimated clock of the server.
pub fn set_server_time(time: DateTime<Utc>) {
    AHEAD_MS.store((time - now()).num_milliseconds(), Ordering::Relaxed);
}

/// Returns the milliseconds since the host started, or 0 if they are unknown. This clock cannot be
/// set, and it includes sleep.
pub fn uptime_ms() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let (whole, part) =
        text.split(' ').next().and_then(|s| s.split_once('.')).unwrap_or(("0", "0"));
    let hundredths: u64 = part.parse().unwrap_or(0);
    whole.parse::<u64>().unwrap_or(0) * 1_000 + hundredths * 10
}

/// Returns the boot id, which changes at each start of the host. Returns an empty string if the id
/// cannot be read.
pub fn boot_id() -> String {
    read_boot_id().unwrap_or_default()
}

pub(crate) fn read_boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uptime_goes_on() {
        assert!(uptime_ms() > 0);
        assert!(!boot_id().is_empty());
    }
}
