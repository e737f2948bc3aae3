//! How an event that was written long ago is read today: step by step, from its version to the one that the rules
//! know. An aggregate's steps are a table, [`Event::UPCASTERS`], in its `upcast.rs` from its second version on.
use serde_json::Value;

use crate::decider::Event;

/// One step: what a payload of this type and version is in later words.
pub struct Upcaster {
    /// `aggregate.verb_past`, as it was written.
    pub event_type: &'static str,
    /// The version it was written in.
    pub version: &'static str,
    /// One payload, many, or none: what was said in one event may be several today, or mean nothing any more.
    pub up: fn(Value) -> Result<Vec<Words>, String>,
}

/// A payload, and in which words it is.
pub struct Words {
    /// `aggregate.verb_past`.
    pub event_type: &'static str,
    /// Of that type.
    pub version: &'static str,
    /// What is said.
    pub payload: Value,
}

/// Why a payload cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It says nothing that the rules know.
    #[error("{0}")]
    Payload(String),
    /// It is in other words than the rules have now, and no step leads there.
    #[error("this program reads {event_type} in version {version} only")]
    Version {
        /// The type that it seems to be.
        event_type: &'static str,
        /// The version of it that the rules have.
        version: &'static str,
    },
}

/// What a stored payload says in today's words.
///
/// # Errors
/// [`Unreadable`].
pub fn read<E: Event>(
    event_type: &str,
    version: &str,
    payload: &str,
) -> Result<Vec<E>, Unreadable> {
    let unreadable = |error: serde_json::Error| Unreadable::Payload(error.to_string());
    if step::<E>(event_type, version, 0).is_none() {
        // Nearly always: what is in today's words need not be taken apart.
        let event: E = serde_json::from_str(payload).map_err(unreadable)?;
        return today(event, event_type, version).map(|event| vec![event]);
    }
    let payload = serde_json::from_str(payload).map_err(unreadable)?;
    let mut events = vec![];
    raise(event_type, version, payload, 0, &mut events)?;
    Ok(events)
}

/// The step that begins with these words, among those from `after` on. Steps are in the order of time, so none
/// leads back.
fn step<E: Event>(event_type: &str, version: &str, after: usize) -> Option<usize> {
    let begins = |step: &Upcaster| step.event_type == event_type && step.version == version;
    E::UPCASTERS.iter().skip(after).position(begins).map(|at| at + after)
}

fn raise<E: Event>(
    event_type: &str,
    version: &str,
    payload: Value,
    after: usize,
    events: &mut Vec<E>,
) -> Result<(), Unreadable> {
    let Some((at, step)) =
        step::<E>(event_type, version, after).and_then(|at| Some((at, E::UPCASTERS.get(at)?)))
    else {
        let event: E = serde_json::from_value(payload)
            .map_err(|error| Unreadable::Payload(error.to_string()))?;
        events.push(today(event, event_type, version)?);
        return Ok(());
    };
    for words in (step.up)(payload).map_err(Unreadable::Payload)? {
        raise(words.event_type, words.version, words.payload, at + 1, events)?;
    }
    Ok(())
}

/// An unknown version may look like a known one, and mean something else.
fn today<E: Event>(event: E, event_type: &str, version: &str) -> Result<E, Unreadable> {
    if event.name() == event_type && event.version() == version {
        return Ok(event);
    }
    Err(Unreadable::Version { event_type: event.name(), version: event.version() })
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;

    /// What is known of a parcel today.
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
                up: |mut old| {
                    let kilos = old["kilos"].as_u64().ok_or("kilos is no number")?;
                    old["grams"] = (kilos * 1000).into();
                    Ok(vec![Words { event_type: "parcel.sent", version: "2", payload: old }])
                },
            },
            // Paying became a fact of its own.
            Upcaster {
                event_type: "parcel.sent",
                version: "2",
                up: |old| {
                    let paid = json!({"type": "paid", "cents": old["cents"]});
                    Ok(vec![
                        Words { event_type: "parcel.paid", version: "1", payload: paid },
                        Words { event_type: "parcel.sent", version: "3", payload: old },
                    ])
                },
            },
            // Nobody weighs any more.
            Upcaster { event_type: "parcel.weighed", version: "1", up: |_| Ok(vec![]) },
        ];
    }

    fn read(event_type: &str, version: &str, payload: Value) -> Result<Vec<ParcelEvent>, String> {
        super::read(event_type, version, &payload.to_string()).map_err(|error| error.to_string())
    }

    fn sent(grams: u64) -> ParcelEvent {
        ParcelEvent::Sent { grams, to: "Ada".into() }
    }

    #[test]
    fn every_version_is_read_in_todays_words() {
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
    fn what_cannot_be_read_is_refused_and_never_taken_for_something_else() {
        // A later program's words look like ours, and may mean something else.
        let later = json!({"type": "sent", "grams": 4, "to": "Ada"});
        let only = "this program reads parcel.sent in version 3 only";
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
