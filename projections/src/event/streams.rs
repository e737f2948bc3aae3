//! Reads the events of named streams through an index. The cost does not grow with the rest of the
//! log.
use event_log::{LogError, Source, StreamId, archive::FLOOR, encryption::Keys, read::floor_of};
use sqlx::PgConnection;

use super::{COLUMNS, EncodedEvent, RecordedEvent, bigint, keys, position_and_sequence, read};

/// Result of a read.
pub(crate) struct StreamPage {
    pub events: Vec<RecordedEvent>,
    /// Sequence and position of the last stored event. The upcaster may have dropped that event.
    pub last: Option<(u64, u64)>,
    /// True if the limit was reached, so there may be more events.
    pub full: bool,
}

/// Reads the events of one stream after a sequence and up to a position, at most `limit`.
pub(crate) async fn page(
    connection: &mut PgConnection,
    source: &Source,
    (aggregate, id): (&str, &str),
    (after_sequence, last): (u64, u64),
    limit: u32,
) -> Result<StreamPage, LogError> {
    let sql = format!(
        "select {COLUMNS}, {FLOOR} as floor from log_event where aggregate_type = $1 and aggregate_id = $2 \
         and sequence > $3 and position <= $4 and position >= coalesce((select first_position from log_stream \
           where aggregate_type = $1 and aggregate_id = $2), 0) order by sequence limit $5"
    );
    let rows = sqlx::query(&sql)
        .bind(aggregate)
        .bind(id)
        .bind(bigint(after_sequence))
        .bind(bigint(last))
        .bind(i64::from(limit))
        .fetch_all(&mut *connection)
        .await?;
    let floor = floor_of(&mut *connection, &rows).await?;
    let rows: Vec<EncodedEvent> = rows.into_iter().map(EncodedEvent::Row).collect();
    let mut encoded = vec![];
    if floor > 0 && starts_later(&rows, after_sequence)? {
        let (stream, range) = (StreamId::new(aggregate, id), (after_sequence, last));
        let archived = source.archives.stream(&mut *connection, &stream, range, limit).await?;
        encoded.extend(archived.into_iter().map(EncodedEvent::Archived));
    }
    let archived = last_sequence_and_position(&encoded)?.map_or(0, |(_, position)| position);
    for row in rows {
        if position_and_sequence(&row)?.0 > archived {
            encoded.push(row);
        }
    }
    encoded.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let keys = keys(connection, source, &encoded).await?;
    decode(&encoded, &keys, limit)
}

/// Returns true if the rows do not start directly after the sequence.
fn starts_later(rows: &[EncodedEvent], after_sequence: u64) -> Result<bool, LogError> {
    let Some(first) = rows.first() else { return Ok(true) };
    Ok(position_and_sequence(first)?.1 != after_sequence.saturating_add(1))
}

/// Reads events of streams of one aggregate type: all events after `after` and up to `last`, and
/// earlier events of the types in `older`. Returns at most `limit`, oldest first.
pub(crate) async fn many(
    connection: &mut PgConnection,
    source: &Source,
    (aggregate, ids): (&str, &[String]),
    (after, last): (u64, u64),
    (older, limit): (&[&str], u32),
) -> Result<StreamPage, LogError> {
    if ids.is_empty() {
        return Ok(StreamPage { events: vec![], last: None, full: false });
    }
    // The events are found first and sorted afterwards. A plan that walks along the positions would
    // read the whole log.
    let sql = format!(
        "with found as materialized (select * from log_event \
           where aggregate_type = $1 and aggregate_id = any($2) and position <= $4 \
           and position >= coalesce((select min(first_position) from log_stream \
             where aggregate_type = $1 and aggregate_id = any($2)), 0) \
           and (position > $3 or event_type = any($5))) \
         select {COLUMNS}, {FLOOR} as floor from found order by position limit $6"
    );
    let rows = sqlx::query(&sql)
        .bind(aggregate)
        .bind(ids)
        .bind(bigint(after))
        .bind(bigint(last))
        .bind(older)
        .bind(i64::from(limit))
        .fetch_all(&mut *connection)
        .await?;
    let floor = floor_of(&mut *connection, &rows).await?;
    let mut encoded = vec![];
    if floor > 0 {
        let mut archived = vec![];
        for id in ids {
            let stream = StreamId::new(aggregate, id);
            archived.extend(
                source
                    .archives
                    .stream(&mut *connection, &stream, (0, last.min(floor)), u32::MAX)
                    .await?,
            );
        }
        archived.retain(|event| event.position > after || older.contains(&&*event.event_type));
        archived.sort_by_key(|event| event.position);
        encoded.extend(archived.into_iter().map(EncodedEvent::Archived));
    }
    encoded.extend(rows.into_iter().map(EncodedEvent::Row));
    encoded.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let keys = keys(connection, source, &encoded).await?;
    decode(&encoded, &keys, limit)
}

fn last_sequence_and_position(encoded: &[EncodedEvent]) -> Result<Option<(u64, u64)>, LogError> {
    let last = encoded.last().map(position_and_sequence).transpose()?;
    Ok(last.map(|(position, sequence)| (sequence, position)))
}

fn decode(encoded: &[EncodedEvent], keys: &Keys, limit: u32) -> Result<StreamPage, LogError> {
    let full = u32::try_from(encoded.len()).is_ok_and(|read| read >= limit);
    Ok(StreamPage {
        events: read(encoded, keys, |_, _| true)?,
        last: last_sequence_and_position(encoded)?,
        full,
    })
}
