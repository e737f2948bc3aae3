//! Conversion of stored payloads to the current version, step by step. An aggregate with a second
//! payload version lists its steps in [`Event::UPCASTERS`].
use serde_json::Value;

use crate::decider::Event;

/// Conversion of a payload of one event type and version to a later version.
pub struct Upcaster {
    /// Stored event type, in the form `aggregate.verb_past`.
    pub event_type: &'static str,
    /// Stored payload version.
    pub version: &'static str,
    /// Converts a payload. Returns several payloads if the event was split, and none if the event
    /// was removed.
    pub convert: fn(Value) -> Result<Vec<VersionedPayload>, String>,
}

/// Payload with event type and version.
pub struct VersionedPayload {
    /// Event type, in the form `aggregate.verb_past`.
    pub event_type: &'static str,
    /// Payload version.
    pub version: &'static str,
    pub payload: Value,
}

/// Reason for which a payload cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpcastError {
    /// The payload does not have the format of its event type and version.
    #[error("{0}")]
    Payload(String),
    /// The version is not the current one, and no upcaster converts it.
    #[error("this program reads only version {version} of {event_type}")]
    Version {
        /// Event type that the payload was deserialized to.
        event_type: &'static str,
        /// Current version of that type.
        version: &'static str,
    },
}

/// Deserializes a stored payload and converts it to the current version.
///
/// # Errors
/// Returns [`UpcastError`] if the payload is invalid, or its version is unknown.
pub fn read<E: Event>(
    event_type: &str,
    version: &str,
    payload: &str,
) -> Result<Vec<E>, UpcastError> {
    let unreadable = |error: serde_json::Error| UpcastError::Payload(error.to_string());
    if step::<E>(event_type, version, 0).is_none() {
        // Most payloads have the current version, so they need no intermediate `Value`.
        let event: E = serde_json::from_str(payload).map_err(unreadable)?;
        return current(event, event_type, version).map(|event| vec![event]);
    }
    let payload = serde_json::from_str(payload).map_err(unreadable)?;
    let mut events = vec![];
    convert(event_type, version, payload, 0, &mut events)?;
    Ok(events)
}

/// Returns the index of the upcaster for this type and version, starting at index `after`.
/// Upcasters are in chronological order, and a start index prevents a cycle of conversions.
fn step<E: Event>(event_type: &str, version: &str, after: usize) -> Option<usize> {
    let begins = |step: &Upcaster| step.event_type == event_type && step.version == version;
    E::UPCASTERS.iter().skip(after).position(begins).map(|at| at + after)
}

fn convert<E: Event>(
    event_type: &str,
    version: &str,
    payload: Value,
    after: usize,
    events: &mut Vec<E>,
) -> Result<(), UpcastError> {
    let Some((at, step)) =
        step::<E>(event_type, version, after).and_then(|at| Some((at, E::UPCASTERS.get(at)?)))
    else {
        let event: E = serde_json::from_value(payload)
            .map_err(|error| UpcastError::Payload(error.to_string()))?;
        events.push(current(event, event_type, version)?);
        return Ok(());
    };
    for converted in (step.convert)(payload).map_err(UpcastError::Payload)? {
        convert(converted.event_type, converted.version, converted.payload, at + 1, events)?;
    }
    Ok(())
}

/// Returns the event if its type and version are current. Otherwise returns an error, because a
/// payload of an unknown version may deserialize with another meaning.
fn current<E: Event>(event: E, event_type: &str, version: &str) -> Result<E, UpcastError> {
    if event.name() == event_type && event.version() == version {
        return Ok(event);
    }
    Err(UpcastError::Version { event_type: event.name(), version: event.version() })
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;

    /// Events of a test aggregate, in their current version.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    enum ParcelEvent {
        Sent { grams: u64, to: String },
        Paid { cents: u64 },
    }

    impl Event for ParcelEvent {
        fn name(&self) -> &'static str {
            match self {
                ParcelEvent::Sent { .. } => "parcel.sent",
                ParcelEvent::Paid { .. } => "parcel.paid",
            }
        }
        fn version(&self) -> &'static str {
            match self {
                ParcelEvent::Sent { .. } => "3",
                ParcelEvent::Paid { .. } => "1",
            }
        }
        const UPCASTERS: &'static [Upcaster] = &[
            // Kilograms became grams.
            Upcaster {
                event_type: "parcel.sent",
                version: "1",
                convert: |mut old| {
                    let kilos = old["kilos"].as_u64().ok_or("kilos is not a number")?;
                    old["grams"] = (kilos * 1000).into();
                    Ok(vec![VersionedPayload {
                        event_type: "parcel.sent",
                        version: "2",
                        payload: old,
                    }])
                },
            },
            // Payment became a separate event.
            Upcaster {
                event_type: "parcel.sent",
                version: "2",
                convert: |old| {
                    let paid = json!({"type": "paid", "cents": old["cents"]});
                    Ok(vec![
                        VersionedPayload { event_type: "parcel.paid", version: "1", payload: paid },
                        VersionedPayload { event_type: "parcel.sent", version: "3", payload: old },
                    ])
                },
            },
            // The event was removed.
            Upcaster { event_type: "parcel.weighed", version: "1", convert: |_| Ok(vec![]) },
        ];
    }

    fn read(event_type: &str, version: &str, payload: Value) -> Result<Vec<ParcelEvent>, String> {
        super::read(event_type, version, &payload.to_string()).map_err(|error| error.to_string())
    }

    fn sent(grams: u64) -> ParcelEvent {
        ParcelEvent::Sent { grams, to: "Ada".into() }
    }

    #[test]
    fn every_version_is_read_as_the_current_one() {
        let paid = ParcelEvent::Paid { cents: 5 };
        let first = json!({"type": "sent", "kilos": 2, "to": "Ada", "cents": 5});
        assert_eq!(read("parcel.sent", "1", first), Ok(vec![paid.clone(), sent(2000)]));
        let second = json!({"type": "sent", "grams": 30, "to": "Ada", "cents": 5});
        assert_eq!(read("parcel.sent", "2", second), Ok(vec![paid, sent(30)]));
        let third = json!({"type": "sent", "grams": 4, "to": "Ada"});
        assert_eq!(read("parcel.sent", "3", third), Ok(vec![sent(4)]));
        assert_eq!(read("parcel.weighed", "1", json!({"type": "weighed"})), Ok(vec![]));
    }

    #[test]
    fn an_unreadable_payload_is_rejected_and_never_decoded_as_another_event() {
        // A payload of a later version may look like a current one.
        let later = json!({"type": "sent", "grams": 4, "to": "Ada"});
        let only = "this program reads only version 3 of parcel.sent";
        assert_eq!(read("parcel.sent", "4", later.clone()), Err(only.into()));
        assert_eq!(read("parcel.lost", "3", later), Err(only.into()));
        for (version, payload) in [
            ("1", json!({"type": "sent", "kilos": "two"})),
            ("2", json!({"type": "sent"})),
            ("3", json!({"type": "sent", "grams": 4})),
            ("3", json!({"type": "thrown"})),
            ("3", json!(null)),
        ] {
            assert!(read("parcel.sent", version, payload.clone()).is_err(), "{payload}");
        }
    }
}
