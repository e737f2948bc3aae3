//! Timestamp format of every API: RFC 3339 in UTC with six fractional digits.
use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serializer};

/// Formats a timestamp in the canonical form.
pub fn text(timestamp: &DateTime<Utc>) -> String {
    timestamp.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Serializes a timestamp for `#[serde(with = "moment")]`.
pub fn serialize<S: Serializer>(timestamp: &DateTime<Utc>, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&text(timestamp))
}

/// Deserializes a timestamp for `#[serde(with = "moment")]`. Accepts any UTC offset.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<DateTime<Utc>, D::Error> {
    DateTime::<Utc>::deserialize(from)
}

/// Serialization of an optional timestamp in the format of [`super::text`].
pub mod optional {
    use super::{DateTime, Deserialize, Deserializer, Serializer, Utc};

    /// Serializes an optional timestamp for `#[serde(with = "moment::optional")]`.
    pub fn serialize<S: Serializer>(
        timestamp: &Option<DateTime<Utc>>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        match timestamp {
            Some(timestamp) => super::serialize(timestamp, out),
            None => out.serialize_none(),
        }
    }

    /// Deserializes an optional timestamp for `#[serde(with = "moment::optional", default)]`.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<DateTime<Utc>>, D::Error> {
        Option::<DateTime<Utc>>::deserialize(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_always_has_six_fractional_digits() {
        let timestamp = DateTime::from_timestamp_micros(1_700_000_000_000_000).unwrap();
        assert_eq!(text(&timestamp), "2023-11-14T22:13:20.000000Z");
    }
}
