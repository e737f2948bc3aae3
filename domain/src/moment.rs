//! Serde format of timestamps, for `#[serde(with)]`: RFC 3339 in UTC with six fractional digits.
use chrono::{SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serializer, de::Error};

use crate::decider::Timestamp;

pub fn text(timestamp: &Timestamp) -> String {
    timestamp.to_rfc3339_opts(SecondsFormat::Micros, true)
}

pub fn serialize<S: Serializer>(timestamp: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text(timestamp))
}

/// Accepts every RFC 3339 time, also with another offset.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(from)?;
    let read = chrono::DateTime::parse_from_rfc3339(&text).map_err(D::Error::custom)?;
    Ok(read.with_timezone(&Utc))
}

/// Format of an optional timestamp. The field also needs `default` and `skip_serializing_if`.
pub mod optional {
    use super::{Deserializer, Serializer, Timestamp};

    pub fn serialize<S: Serializer>(
        timestamp: &Option<Timestamp>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match timestamp {
            Some(timestamp) => super::serialize(timestamp, to),
            None => to.serialize_none(),
        }
    }

    /// Accepts every RFC 3339 time, also with another offset.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        super::deserialize(from).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_has_one_canonical_text() {
        assert_eq!(text(&Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }
}
