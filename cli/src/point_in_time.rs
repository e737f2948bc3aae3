//! Points in time on the command line: a position, a time, a day, or a duration ago.
//!
//! Days are in UTC, like all printed times. A weekday means its most recent occurrence, which can
//! be today. General date parsers select the next occurrence instead.
use std::str::FromStr;

use chrono::{DateTime, Datelike as _, Days, NaiveDate, TimeDelta, Utc, Weekday};

use crate::duration::parse_seconds;

/// Accepted formats, for error messages.
const ACCEPTED_FORMATS: &str = "2026-11-20T12:00:00Z, 2026-11-20, 2h ago, yesterday or tuesday";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointInTime {
    Position(u64),
    Time(DateTime<Utc>),
}

/// Time on the command line. Unlike in [`PointInTime`], a position is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) DateTime<Utc>);

impl PointInTime {
    /// Returns the position or the time, for the parameters of a query.
    pub(crate) fn parts(self) -> (Option<u64>, Option<DateTime<Utc>>) {
        match self {
            PointInTime::Position(position) => (Some(position), None),
            PointInTime::Time(time) => (None, Some(time)),
        }
    }
}

impl FromStr for PointInTime {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(position) = text.parse() {
            return Ok(PointInTime::Position(position));
        }
        let read = read(text, now());
        let wrong = || {
            format!(
                "{text:?} is neither a position nor a time: use a number, or a time such as {ACCEPTED_FORMATS}"
            )
        };
        read.map(PointInTime::Time).ok_or_else(wrong)
    }
}

impl FromStr for Moment {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a valid time: use a form such as {ACCEPTED_FORMATS}");
        read(text, now()).map(Moment).ok_or_else(wrong)
    }
}

fn now() -> DateTime<Utc> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of the caller determines relative times"
    )]
    Utc::now()
}

fn read(text: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
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
            assert_eq!(read(input, now), Some(expected.parse().unwrap()), "{input}");
        }
        for wrong in
            ["", "ago", "0h ago", "2 ago", "soon", "2026-13-01", "tues-day", "99999999999999d ago"]
        {
            assert_eq!(read(wrong, now), None, "{wrong}");
        }
    }

    #[test]
    fn number_is_a_position() {
        assert_eq!("1841".parse(), Ok(PointInTime::Position(1841)));
        assert!("-1".parse::<PointInTime>().unwrap_err().contains("tuesday"));
        assert!("12".parse::<Moment>().is_err());
    }
}
