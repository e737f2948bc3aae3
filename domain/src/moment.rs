//! How a moment is written: RFC 3339, UTC, always with six digits of a second. For `#[serde(with)]`.
use chrono::{SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serializer, de::Error};

use crate::decider::Timestamp;

/// The one spelling of a moment.
pub fn text(moment: &Timestamp) -> String {
    moment.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Writes the one spelling.
pub fn serialize<S: Serializer>(moment: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text(moment))
}

/// Reads any RFC 3339 time.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(from)?;
    let read = chrono::DateTime::parse_from_rfc3339(&text).map_err(D::Error::custom)?;
    Ok(read.with_timezone(&Utc))
}

/// The same for a moment that may be absent; wants `default` and `skip_serializing_if` beside it.
pub mod optional {
    use super::{Deserializer, Serializer, Timestamp};

    /// Writes the one spelling, or nothing.
    pub fn serialize<S: Serializer>(moment: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        match moment {
            Some(moment) => super::serialize(moment, to),
            None => to.serialize_none(),
        }
    }

    /// Reads any RFC 3339 time.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        super::deserialize(from).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_one_spelling() {
        assert_eq!(text(&Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }
}
