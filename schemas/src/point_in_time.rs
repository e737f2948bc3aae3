//! Points in time as users type them: a time, a day, or a duration ago.
//!
//! Days are in UTC, like all printed times. A weekday means its most recent occurrence, which can
//! be today. General date parsers select the next occurrence instead.
use chrono::{DateTime, Datelike as _, Days, NaiveDate, TimeDelta, Utc, Weekday};

use crate::duration::parse_seconds;

/// Accepted formats, for error messages.
pub const ACCEPTED_FORMATS: &str = "2026-11-20T12:00:00Z, 2026-11-20, 2h ago, yesterday or tuesday";

/// Parses a time relative to `now`. Returns `None` for any other text.
pub fn parse_time(text: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.with_timezone(&Utc));
    }
    let text = text.trim().to_ascii_lowercase();
    if let Some(ago) = text.strip_suffix("ago") {
        let seconds = i64::try_from(parse_seconds(ago.trim_end()).ok()?).ok()?;
        return now.checked_sub_signed(TimeDelta::try_seconds(seconds)?);
    }
    let today = now.date_naive();
    let day = match &*text {
        "now" => return Some(now),
        "today" => today,
        "yesterday" => today.checked_sub_days(Days::new(1))?,
        other => match other.parse::<Weekday>() {
            Ok(weekday) => {
                let since = today.weekday().days_since(weekday);
                today.checked_sub_days(Days::new(since.into()))?
            }
            Err(_) => NaiveDate::parse_from_str(other, "%Y-%m-%d").ok()?,
        },
    };
    Some(day.and_hms_opt(0, 0, 0)?.and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_times_are_parsed() {
        // A Saturday.
        let now: DateTime<Utc> = "2026-11-21T15:04:05Z".parse().unwrap();
        for (input, expected) in [
            ("2026-11-20T12:00:00+01:00", "2026-11-20T11:00:00Z"),
            ("2026-11-20", "2026-11-20T00:00:00Z"),
            ("2h ago", "2026-11-21T13:04:05Z"),
            ("90mago", "2026-11-21T13:34:05Z"),
            ("3d ago", "2026-11-18T15:04:05Z"),
            ("now", "2026-11-21T15:04:05Z"),
            ("today", "2026-11-21T00:00:00Z"),
            ("yesterday", "2026-11-20T00:00:00Z"),
            ("Tuesday", "2026-11-17T00:00:00Z"),
            ("sun", "2026-11-15T00:00:00Z"),
            ("saturday", "2026-11-21T00:00:00Z"),
        ] {
            assert_eq!(parse_time(input, now), Some(expected.parse().unwrap()), "{input}");
        }
        for wrong in
            ["", "ago", "0h ago", "2 ago", "soon", "2026-13-01", "tues-day", "99999999999999d ago"]
        {
            assert_eq!(parse_time(wrong, now), None, "{wrong}");
        }
    }
}
