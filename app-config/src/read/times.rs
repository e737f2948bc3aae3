//! Durations and schedules.
use std::str::FromStr;

use chrono::{DateTime, Utc};
use croner::parser::{CronParser, Seconds, Year};

use super::section::Section;

impl Section<'_> {
    /// A duration as Go writes them, in milliseconds.
    pub fn duration(&self, key: &str) -> Option<u64> {
        let text = self.string(key)?;
        let known = duration_ms(&text).filter(|ms| *ms > 0);
        if known.is_none() {
            let message = format!("{text:?} is no duration");
            self.error(key, "bad_duration", message, "write it as 30s, 5m or 1h30m");
        }
        known
    }

    /// A cron expression of five fields.
    pub fn schedule(&self, key: &str) -> Option<String> {
        let text = self.string(key)?;
        match Schedule::of(&text, self.reader.nevers.get() < MOST_NEVERS) {
            Schedule::Fires => {}
            Schedule::Never => {
                self.reader.nevers.set(self.reader.nevers.get() + 1);
                let message = format!("the schedule {text:?} never comes: there is no such day");
                self.warning(key, "never_fires", message, "correct the day or the month");
            }
            Schedule::Wrong(why) => {
                let message = format!("{text:?} is no cron expression: {why}");
                let remedy = "write minute, hour, day, month and weekday, as in \"0 3 * * *\"";
                self.error(key, "bad_cron", message, remedy);
            }
        }
        Some(text)
    }
}

/// That a schedule never comes is known only after three thousand years, which take some
/// milliseconds; a directory full of such schedules must not take minutes.
const MOST_NEVERS: usize = 20;

enum Schedule {
    Fires,
    Never,
    Wrong(String),
}

impl Schedule {
    /// `search` is whether to look for a moment at which it fires.
    fn of(text: &str, search: bool) -> Self {
        let parser =
            CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = match parser.parse(text) {
            Ok(cron) => cron,
            Err(error) => {
                return Schedule::Wrong(error.to_string().trim_end_matches('.').to_lowercase());
            }
        };
        // Any moment will do: the same text must get the same answer on every day.
        let Ok(from) = DateTime::<Utc>::from_str("2024-01-01T00:00:00Z") else {
            return Schedule::Fires;
        };
        if !search {
            return Schedule::Fires;
        }
        match cron.find_next_occurrence(&from, true) {
            Ok(_) => Schedule::Fires,
            Err(_) => Schedule::Never,
        }
    }
}

/// Durations as Go writes them: `1h`, `5m30s`, `250ms`, `1.5h`.
pub fn duration_ms(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut total = 0u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        total = total.checked_add(times(number, unit_ms)?)?;
        rest = after;
    }
    Some(total)
}

/// A decimal number of units; what is less than a millisecond is cut off.
fn times(number: &str, unit_ms: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || part.is_empty() || part.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(part.len() as u32);
    let part = part.parse::<u64>().ok()?.checked_mul(unit_ms)? / scale;
    whole.parse::<u64>().ok()?.checked_mul(unit_ms)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_the_format() {
        for (text, ms) in [("1h", 3_600_000), ("5m30s", 330_000), ("1.5h", 5_400_000)] {
            assert_eq!(duration_ms(text), Some(ms), "{text}");
        }
        for bad in ["", "5", "m", "5 m", "-5m", "1..5h", ".5h", "1.h", "99999999999999999999h"] {
            assert_eq!(duration_ms(bad), None, "{bad}");
        }
    }

    #[test]
    fn schedules_have_five_fields_and_a_day_that_comes() {
        for good in ["0 3 * * *", "*/15 * * * 1-5", "@daily", "0 0 29 2 *"] {
            assert!(matches!(Schedule::of(good, true), Schedule::Fires), "{good}");
        }
        assert!(matches!(Schedule::of("0 0 30 2 *", true), Schedule::Never));
        for bad in ["", "* * * *", "61 * * * *", "0 0 3 * * *", "daily"] {
            assert!(matches!(Schedule::of(bad, true), Schedule::Wrong(_)), "{bad}");
        }
    }
}
