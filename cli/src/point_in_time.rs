//! Points in time on the command line: a position or a time.
use std::str::FromStr;

use chrono::{DateTime, Utc};
use schemas::point_in_time::{ACCEPTED_FORMATS, parse_time};

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
        let read = parse_time(text, now());
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
        parse_time(text, now()).map(Moment).ok_or_else(wrong)
    }
}

fn now() -> DateTime<Utc> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of the caller determines relative times"
    )]
    Utc::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_a_position() {
        assert_eq!("1841".parse(), Ok(PointInTime::Position(1841)));
        assert!("-1".parse::<PointInTime>().unwrap_err().contains("tuesday"));
        assert!("12".parse::<Moment>().is_err());
    }
}
