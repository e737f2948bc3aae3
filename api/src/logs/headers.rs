//! Headers of a log chunk: `Content-Range` and `Repr-Digest`.
use std::ops::Range;

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// `Content-Range: bytes FIRST-LAST/*`: the range of the stream in the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContentRange(pub Range<u64>);

/// Header that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The `Content-Range` header is not `bytes FIRST-LAST/*`.
    #[error("invalid Content-Range {0:?}: expected `bytes FIRST-LAST/*`")]
    Range(String),
    /// The `Repr-Digest` header is not `sha-256=:BASE64:`.
    #[error("invalid Repr-Digest {0:?}: expected `sha-256=:BASE64:`")]
    Digest(String),
}

impl std::str::FromStr for ContentRange {
    type Err = HeaderError;
    fn from_str(text: &str) -> Result<Self, HeaderError> {
        let refuse = || HeaderError::Range(text.into());
        let range = text.trim().strip_prefix("bytes ").ok_or_else(refuse)?;
        let (range, total) = range.trim().split_once('/').ok_or_else(refuse)?;
        let (first, last) = range.split_once('-').ok_or_else(refuse)?;
        let (first, last) = (number(first).ok_or_else(refuse)?, number(last).ok_or_else(refuse)?);
        let end = last.checked_add(1).filter(|end| *end > first).ok_or_else(refuse)?;
        let total_fits = total == "*" || number(total).is_some_and(|total| total >= end);
        if total_fits { Ok(ContentRange(first..end)) } else { Err(refuse()) }
    }
}

/// Parses digits only: no sign, no space.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Returns the SHA-256 of a `Repr-Digest` header. Ignores other algorithms in it.
pub(crate) fn repr_digest(text: &str) -> Result<[u8; 32], HeaderError> {
    let refuse = || HeaderError::Digest(text.into());
    let member = text.split(',').find_map(|member| member.trim().strip_prefix("sha-256="));
    let base64 = member.and_then(|value| value.strip_prefix(':')?.strip_suffix(':'));
    let bytes = STANDARD.decode(base64.ok_or_else(refuse)?).map_err(|_| refuse())?;
    bytes.try_into().map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_header_has_the_last_byte() {
        let read = |text: &str| text.parse::<ContentRange>().map(|range| range.0);
        assert_eq!(read("bytes 4096-8191/*"), Ok(4096..8192));
        assert_eq!(read("bytes 0-0/*"), Ok(0..1));
        assert_eq!(read("bytes 0-9/10"), Ok(0..10));
        for other in [
            "bytes 5-4/*",
            "bytes -4/*",
            "bytes 1-/*",
            "bytes 0-9/9",
            "bytes +1-2/*",
            "lines 1-2/*",
            "bytes 1-2",
            "bytes 0-18446744073709551615/*",
            "",
        ] {
            assert!(read(other).is_err(), "{other}");
        }
    }

    #[test]
    fn digest_is_found_among_others() {
        let header = format!("sha-256=:{}:", STANDARD.encode([7; 32]));
        assert_eq!(repr_digest(&header), Ok([7; 32]));
        assert_eq!(repr_digest(&format!("md5=:AAAA:, {header}")), Ok([7; 32]));
        for other in ["sha-256=:AAAA:", "sha-256=AAAA", "md5=:AAAA:", ""] {
            assert!(repr_digest(other).is_err(), "{other}");
        }
    }
}
