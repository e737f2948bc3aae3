//! A single byte range (RFC 9110). Multiple ranges are not supported.
use std::ops::Range;

use crate::problem::{Code, Problem};

/// Parses `bytes=0-99`, `bytes=100-` or `bytes=-100`, limited to the length of the log.
pub(super) fn of(text: &str, length: u64) -> Result<Range<u64>, Problem> {
    let wrong = || {
        let detail =
            format!("invalid range {text:?}: the log has {length} bytes; request bytes that exist");
        let range = format!("bytes */{length}");
        Problem::new(Code::RangeNotSatisfiable, detail)
            .header(axum::http::header::CONTENT_RANGE, range)
    };
    let (first, last) =
        text.strip_prefix("bytes=").and_then(|rest| rest.split_once('-')).ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let range = match (first, last) {
        ("", last) => length.saturating_sub(number(last)?)..length,
        (first, "") => number(first)?..length,
        (first, last) => number(first)?..number(last)?.saturating_add(1).min(length),
    };
    if range.start < range.end { Ok(range) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn range_outside_the_log_is_rejected() {
        assert_eq!(of("bytes=0-3", 10).unwrap(), 0..4);
        assert_eq!(of("bytes=8-", 10).unwrap(), 8..10);
        assert_eq!(of("bytes=-3", 10).unwrap(), 7..10);
        assert_eq!(of("bytes=5-100", 10).unwrap(), 5..10);
        for wrong in
            ["bytes=10-", "bytes=5-4", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4", "bytes=-"]
        {
            assert!(of(wrong, 10).is_err(), "{wrong}");
        }
    }
}
