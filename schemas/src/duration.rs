//! Durations as users type them.

/// Parses `90m`, `12h` or `30d` as seconds.
///
/// # Errors
/// If the text is not a positive number with a unit.
pub fn parse_seconds(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a valid duration: use a positive number and s, m, h or d, such as 30d"
        )
    };
    let unit = match text.chars().last().ok_or_else(wrong)? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(unit).filter(|s| *s > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::parse_seconds;

    #[test]
    fn duration_is_a_number_and_a_unit() {
        assert_eq!(
            ["90s", "2m", "12h", "30d"].map(|t| parse_seconds(t).unwrap()),
            [90, 120, 43_200, 2_592_000]
        );
        for wrong in ["", "d", "5", "0d", "-1d", "1w", "é", "99999999999999999999d"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
