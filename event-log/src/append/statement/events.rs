use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::builder::{StatementBuilder, table};
use crate::{StoredEvent, stored::bigint};

/// Adds the insert of the events.
pub(super) fn push(sql: &mut StatementBuilder, events: &[StoredEvent], recorded_at: DateTime<Utc>) {
    let ids = events.iter().map(|event| Uuid::from_bytes(event.event_id.to_bytes()));
    let columns = [
        ("position", sql.column(events.iter().map(|event| bigint(event.position)))),
        ("event_id", sql.column(ids)),
        ("kind", sql.column(events.iter().map(|event| &*event.stream.aggregate_type))),
        ("id", sql.column(events.iter().map(|event| &*event.stream.aggregate_id))),
        ("sequence", sql.column(events.iter().map(|event| bigint(event.sequence)))),
        ("event_type", sql.column(events.iter().map(|event| &*event.event_type))),
        ("event_version", sql.column(events.iter().map(|event| &*event.event_version))),
        ("payload", sql.column(events.iter().map(|event| &*event.payload))),
        ("metadata", sql.column(events.iter().map(|event| &*event.metadata))),
        ("salt", sql.column(events.iter().map(|event| &event.salt[..]))),
        ("leaf", sql.column(events.iter().map(|event| &event.leaf[..]))),
        ("chain", sql.column(events.iter().map(|event| &event.chain[..]))),
    ];
    let recorded_at = sql.value(recorded_at);
    sql.cte("event", || {
        let rows = table("u", &columns);
        format!(
            "insert into log_event (position, event_id, aggregate_type, aggregate_id, sequence, event_type,
         event_version, payload, metadata, salt, leaf, chain, commit_no, recorded_at)
  select u.position, u.event_id, u.kind, u.id, u.sequence, u.event_type, u.event_version,
         u.payload::json, u.metadata::json, u.salt, u.leaf, u.chain, head.commit_no, {recorded_at}
    from head, {rows}"
        )
    });
}
