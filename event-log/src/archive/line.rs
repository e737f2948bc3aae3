//! An event as a line of JSON with every column of its row. Payload and metadata are kept byte for
//! byte.
use std::borrow::Cow;

use domain::decider::Timestamp;
use domain::ids::EventId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{StoredEvent, StreamId, stored::not_decrypted};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    position: u64,
    event_id: EventId,
    #[serde(borrow)]
    aggregate_type: Cow<'a, str>,
    #[serde(borrow)]
    aggregate_id: Cow<'a, str>,
    sequence: u64,
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    event_version: Cow<'a, str>,
    recorded_at: Timestamp,
    commit_no: u64,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow)]
    salt: Cow<'a, str>,
    #[serde(borrow)]
    leaf: Cow<'a, str>,
    #[serde(borrow)]
    chain: Cow<'a, str>,
}

/// Appends the line of an event. Fails if the stored JSON does not fit on one line.
pub(super) fn write(event: &StoredEvent, lines: &mut Vec<u8>) -> Result<(), String> {
    let raw = |text: &'_ str| -> Result<Box<RawValue>, String> {
        let raw = RawValue::from_string(text.to_owned()).map_err(|why| why.to_string())?;
        // The text must fit on one line, and its bytes must be those that were hashed.
        if raw.get() == text && !text.contains('\n') {
            Ok(raw)
        } else {
            Err("its JSON is not on a single line".into())
        }
    };
    let (payload, metadata) = (raw(&event.payload)?, raw(&event.metadata)?);
    let line = Line {
        position: event.position,
        event_id: EventId(event.event_id),
        aggregate_type: Cow::Borrowed(&event.stream.aggregate_type),
        aggregate_id: Cow::Borrowed(&event.stream.aggregate_id),
        sequence: event.sequence,
        event_type: Cow::Borrowed(&event.event_type),
        event_version: Cow::Borrowed(&event.event_version),
        recorded_at: event.recorded_at,
        commit_no: event.commit_no,
        payload: &payload,
        metadata: &metadata,
        salt: Cow::Owned(hex::encode(event.salt)),
        leaf: Cow::Owned(hex::encode(event.leaf)),
        chain: Cow::Owned(hex::encode(event.chain)),
    };
    serde_json::to_writer(&mut *lines, &line).map_err(|why| why.to_string())?;
    lines.push(b'\n');
    Ok(())
}

/// Parses the event of a line.
pub(super) fn read(line: &[u8]) -> Result<StoredEvent, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|why| why.to_string())?;
    Ok(StoredEvent {
        position: line.position,
        event_id: line.event_id.0,
        stream: StreamId::new(line.aggregate_type, line.aggregate_id),
        sequence: line.sequence,
        event_type: Cow::Owned(line.event_type.into_owned()),
        event_version: Cow::Owned(line.event_version.into_owned()),
        readable: not_decrypted(line.payload.get()),
        payload: line.payload.get().into(),
        metadata: line.metadata.get().into(),
        salt: parse_hex(&line.salt, "salt")?,
        leaf: parse_hex(&line.leaf, "leaf")?,
        chain: parse_hex(&line.chain, "chain")?,
        commit_no: line.commit_no,
        recorded_at: line.recorded_at,
    })
}

fn parse_hex<const N: usize>(text: &str, what: &str) -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).map_err(|why| format!("{what}: {why}"))?;
    Ok(bytes)
}
