use std::str::FromStr;

use chrono::{DateTime, Utc};
use croner::parser::{CronParser, Seconds, Year};

use super::section::Section;

impl Section<'_> {
    /// Reads a positive duration in Go's notation. Returns milliseconds.
    pub fn duration(&self, key: &str) -> Option<u64> {
        let text = self.string(key)?;
        let known = duration_ms(&text).filter(|ms| *ms > 0);
        if known.is_none() {
            let message = format!("invalid duration {text:?}");
            self.error(key, "bad_duration", message, "write it as 30s, 5m or 1h30m");
        }
        known
    }

    /// Reads a cron expression of five fields, or a name such as `@daily`.
    pub fn schedule(&self, key: &str) -> Option<String> {
        let text = self.string(key)?;
        match Schedule::of(&text, self.reader.unmatched_schedules.get() < MAX_UNMATCHED) {
            Schedule::Fires => {}
            Schedule::Never => {
                self.reader.unmatched_schedules.set(self.reader.unmatched_schedules.get() + 1);
                let message = format!("the schedule {text:?} never fires: the date does not exist");
                self.warning(key, "never_fires", message, "correct the day or the month");
            }
            Schedule::Wrong(why) => {
                let message = format!("invalid cron expression {text:?}: {why}");
                let remedy = "write minute, hour, day, month and weekday, as in \"0 3 * * *\"";
                self.error(key, "bad_cron", message, remedy);
            }
        }
        Some(text)
    }
}

/// Maximum number of schedules that are searched without a result. Each search covers three
/// thousand years and takes some milliseconds, so a directory full of such schedules would take
/// minutes.
const MAX_UNMATCHED: usize = 20;

enum Schedule {
    Fires,
    Never,
    Wrong(String),
}

impl Schedule {
    /// Parses a schedule. With `search`, also determines whether it ever fires.
    fn of(text: &str, search: bool) -> Self {
        let parser =
            CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = match parser.parse(text) {
            Ok(cron) => cron,
            Err(error) => {
                return Schedule::Wrong(error.to_string().trim_end_matches('.').to_lowercase());
            }
        };
        // A fixed start, so that the same text gives the same result on every day.
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

/// Parses a duration as Go does: `1h`, `5m30s`, `1.5h`, `.5h`, `250ms`, `+5m`. Rounds up to whole
/// milliseconds. Returns `None` for a negative or invalid duration.
pub fn duration_ms(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = 0u128;
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let digits = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let (unit, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let unit_ns = match unit {
            "ns" => 1,
            // Both Unicode characters for micro.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        total += nanoseconds(number, unit_ns)?;
        rest = after;
    }
    // Maximum of Go's durations, 292 years.
    let total = u64::try_from(total).ok().filter(|total| *total <= i64::MAX as u64)?;
    Some(total.div_ceil(1_000_000))
}

/// Nanoseconds of a decimal number of units. Digits after the ninth decimal place have no effect.
fn nanoseconds(number: &str, unit_ns: u128) -> Option<u128> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() || part.contains('.') {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u64>().ok() };
    let part = &part[..part.len().min(9)];
    let scale = 10u128.pow(part.len() as u32);
    Some(u128::from(digits(whole)?) * unit_ns + u128::from(digits(part)?) * unit_ns / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_the_format() {
        for (text, ms) in [
            ("1h", 3_600_000),
            ("5m30s", 330_000),
            ("1.5h", 5_400_000),
            (".5h", 1_800_000),
            ("1.h", 3_600_000),
            ("+5m", 300_000),
            ("100us", 1),
            ("1500\u{b5}s", 2),
            ("1500\u{3bc}s", 2),
            ("5000000ns", 5),
            ("0.0000000000000000001h1s", 1_000),
            ("0", 0),
        ] {
            assert_eq!(duration_ms(text), Some(ms), "{text}");
        }
        for bad in [
            "",
            "5",
            "m",
            "5 m",
            "-5m",
            "1..5h",
            ".",
            ".h",
            " 5m",
            "5m ",
            "+",
            "++5m",
            "5d",
            "9999999h",
            "99999999999999999999h",
        ] {
            assert_eq!(duration_ms(bad), None, "{bad}");
        }
    }

    #[test]
    fn schedules_have_five_fields_and_an_existing_date() {
        for good in ["0 3 * * *", "*/15 * * * 1-5", "@daily", "0 0 29 2 *"] {
            assert!(matches!(Schedule::of(good, true), Schedule::Fires), "{good}");
        }
        assert!(matches!(Schedule::of("0 0 30 2 *", true), Schedule::Never));
        for bad in ["", "* * * *", "61 * * * *", "0 0 3 * * *", "daily"] {
            assert!(matches!(Schedule::of(bad, true), Schedule::Wrong(_)), "{bad}");
        }
    }
}
