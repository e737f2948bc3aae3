//! Reads events from rows and archives, and decodes each event once for all projections.
use std::sync::Arc;

use domain::recorded::{RawEvent, RecordedEvent};
use event_log::{
    LogError, Source, StoredEvent,
    archive::FLOOR,
    encryption::{EventContext, Keys},
    read::floor_of,
};
use sqlx::{PgConnection, Row, postgres::PgRow};

/// Decodes a stored event. An event of an older version can upcast to several.
///
/// # Errors
/// [`LogError::Damaged`] if this program does not know the event.
pub fn decode(stored: &StoredEvent) -> Result<Vec<RecordedEvent>, LogError> {
    Ok(RawEvent { payload: stored.readable()?, ..of_stored(stored) }.decode()?)
}

/// Decodes a stored event without decrypting it: encrypted fields read `[encrypted]`.
///
/// # Errors
/// [`LogError::Damaged`] if this program does not know the event.
pub fn decode_encrypted(stored: &StoredEvent) -> Result<Vec<RecordedEvent>, LogError> {
    Ok(of_stored(stored).decode()?)
}

/// Reads the events of these aggregate types after one position and up to another, without the
/// columns that only proofs need. Positions have no gaps, so a page is a range of positions.
pub(crate) async fn page(
    connection: &mut PgConnection,
    source: &Source,
    range: (u64, u64),
    aggregates: &[&str],
) -> Result<Vec<RecordedEvent>, LogError> {
    let events = rows(&mut *connection, source, range, aggregates).await?;
    let keys = keys(connection, source, &events).await?;
    read(&events, &keys, |_, _| true)
}

/// Loads the keys that decrypt these events.
pub(crate) async fn keys(
    connection: &mut PgConnection,
    source: &Source,
    events: &[EncodedEvent],
) -> Result<Keys, sqlx::Error> {
    let payloads = events.iter().map(payload).collect::<Result<Vec<&str>, _>>()?;
    source.keys.decryption_keys(connection, payloads).await
}

/// Reads the events as [`page`] does, without decoding them. Decoding takes longer than reading, so
/// several workers decode concurrently.
pub(crate) async fn rows(
    connection: &mut PgConnection,
    source: &Source,
    (after, last): (u64, u64),
    aggregates: &[&str],
) -> Result<Vec<EncodedEvent>, LogError> {
    let sql = format!(
        "select {COLUMNS}, {FLOOR} as floor from log_event \
         where position > $1 and position <= $2 and aggregate_type = any($3) order by position"
    );
    let rows = sqlx::query(&sql)
        .bind(bigint(after))
        .bind(bigint(last))
        .bind(aggregates)
        .fetch_all(&mut *connection)
        .await?;
    let floor = floor_of(connection, &rows).await?;
    let mut events = vec![];
    if floor > after {
        let archived =
            source.archives.events(connection, (after, floor.min(last)), u32::MAX).await?;
        let is_selected =
            |event: &Arc<StoredEvent>| aggregates.contains(&&*event.stream.aggregate_type);
        events.extend(archived.into_iter().filter(is_selected).map(EncodedEvent::Archived));
    }
    events.extend(rows.into_iter().map(EncodedEvent::Row));
    Ok(events)
}

/// An event that is not decoded yet.
pub(crate) enum EncodedEvent {
    /// A row of the event table.
    Row(PgRow),
    /// An event that only an archive has.
    Archived(Arc<StoredEvent>),
}

/// Columns that a projection needs, in the order in which they are read.
const COLUMNS: &str = "position, sequence, recorded_at, aggregate_type, aggregate_id, event_type, \
    event_version, payload::text, metadata::text";

/// Position as the database stores it. No log comes close to 2^63 events.
fn bigint(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

/// Id of the event's stream.
pub(crate) fn stream(event: &EncodedEvent) -> Result<&str, sqlx::Error> {
    match event {
        EncodedEvent::Row(row) => row.try_get(4),
        EncodedEvent::Archived(event) => Ok(&event.stream.aggregate_id),
    }
}

fn payload(event: &EncodedEvent) -> Result<&str, sqlx::Error> {
    match event {
        EncodedEvent::Row(row) => row.try_get(7),
        EncodedEvent::Archived(event) => Ok(&event.payload),
    }
}

/// Decodes the events whose stream and position `is_selected` accepts.
pub(crate) fn read<'r>(
    events: impl IntoIterator<Item = &'r EncodedEvent>,
    keys: &Keys,
    is_selected: impl Fn(&str, u64) -> bool,
) -> Result<Vec<RecordedEvent>, LogError> {
    let events = events.into_iter();
    let mut decoded = Vec::with_capacity(events.size_hint().0);
    for event in events {
        if is_selected(stream(event)?, position_and_sequence(event)?.0) {
            let mut raw = match event {
                EncodedEvent::Row(row) => of_row(row)?,
                EncodedEvent::Archived(event) => of_stored(event),
            };
            let payload = keys.open(raw.payload, context(&raw)).map_err(|why| raw.error(&why))?;
            raw.payload = payload.as_deref().unwrap_or(raw.payload);
            raw.decode_into(&mut decoded)?;
        }
    }
    Ok(decoded)
}

fn position_and_sequence(event: &EncodedEvent) -> Result<(u64, u64), sqlx::Error> {
    match event {
        EncodedEvent::Row(row) => Ok((number(row.try_get(0)?), number(row.try_get(1)?))),
        EncodedEvent::Archived(event) => Ok((event.position, event.sequence)),
    }
}

fn number(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Returns the event without decrypting it.
fn of_stored(stored: &StoredEvent) -> RawEvent<'_> {
    RawEvent {
        position: stored.position,
        sequence: stored.sequence,
        at: stored.recorded_at,
        aggregate: &stored.stream.aggregate_type,
        id: &stored.stream.aggregate_id,
        event_type: &stored.event_type,
        version: &stored.event_version,
        payload: &stored.payload,
        metadata: &stored.metadata,
    }
}

fn of_row(row: &PgRow) -> Result<RawEvent<'_>, sqlx::Error> {
    Ok(RawEvent {
        position: number(row.try_get(0)?),
        sequence: number(row.try_get(1)?),
        at: row.try_get(2)?,
        aggregate: row.try_get(3)?,
        id: row.try_get(4)?,
        event_type: row.try_get(5)?,
        version: row.try_get(6)?,
        payload: row.try_get(7)?,
        metadata: row.try_get(8)?,
    })
}

fn context<'a>(raw: &RawEvent<'a>) -> EventContext<'a> {
    let RawEvent { aggregate, id, sequence, event_type, .. } = *raw;
    EventContext { aggregate_type: aggregate, aggregate_id: id, sequence, event_type }
}

pub(crate) mod streams;
