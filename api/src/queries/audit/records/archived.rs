//! Selects events that exist only in archives.
use std::sync::Arc;

use domain::ids::EventId;
use event_log::{EventLog, LogError, StoredEvent, StreamId};
use schemas::control::audit::EventRecord;
use serde_json::{Value, value::RawValue};
use sqlx::PgConnection;

use super::EventSelection;
use crate::problem::Problem;

/// Number of events that are read at a time.
const PAGE: u32 = 2_000;

/// Returns at most `limit` matching events of a range, oldest first. The start is exclusive, the
/// end inclusive.
pub(super) async fn find(
    log: &EventLog,
    connection: &mut PgConnection,
    selection: &EventSelection,
    (after, end): (u64, u64),
    limit: u32,
) -> Result<Vec<Arc<StoredEvent>>, LogError> {
    let (archives, limit) = (log.archives(), limit as usize);
    if let (Some(kind), Some(id)) = (&selection.aggregate_type, &selection.aggregate_id) {
        let stream = StreamId::new(kind, id);
        let mut found = archives.stream(connection, &stream, (0, end), u32::MAX).await?;
        found.retain(|event| event.position > after && selection.matches(event));
        found.truncate(limit);
        return Ok(found);
    }
    let (mut found, mut at) = (vec![], after);
    while at < end && found.len() < limit {
        let page = archives.events(connection, (at, end), PAGE).await?;
        let Some(last) = page.last() else { break };
        at = last.position;
        found.extend(page.into_iter().filter(|event| selection.matches(event)));
    }
    found.truncate(limit);
    Ok(found)
}

impl EventSelection {
    fn matches(&self, event: &StoredEvent) -> bool {
        let same = |expected: &Option<String>, found: &str| {
            expected.as_ref().is_none_or(|expected| expected == found)
        };
        let begins = self.event_prefix.as_ref();
        same(&self.aggregate_type, &event.stream.aggregate_type)
            && same(&self.aggregate_id, &event.stream.aggregate_id)
            && same(&self.event_type, &event.event_type)
            && begins.is_none_or(|prefix| event.event_type.starts_with(prefix))
            && self.actor.as_ref().is_none_or(|expected| *expected == actor(event))
    }
}

fn actor(event: &StoredEvent) -> String {
    let metadata: Value = serde_json::from_str(&event.metadata).unwrap_or_default();
    metadata.get("actor").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Converts an event to its wire format.
pub(super) fn record(event: &Arc<StoredEvent>) -> Result<EventRecord, Problem> {
    let raw = |text: &str| RawValue::from_string(text.to_owned()).map_err(Problem::internal);
    Ok(EventRecord {
        position: event.position,
        event_id: EventId(event.event_id),
        stream: event.stream.to_string(),
        sequence: event.sequence,
        event_type: event.event_type.to_string(),
        version: event.event_version.to_string(),
        recorded_at: event.recorded_at,
        actor: actor(event),
        actor_name: None,
        payload: raw(&event.payload)?,
        readable_payload: None,
        metadata: raw(&event.metadata)?,
        salt: hex::encode(event.salt),
        leaf: hex::encode(event.leaf),
        chain: hex::encode(event.chain),
    })
}
