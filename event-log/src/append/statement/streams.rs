//! Rows of streams: version and last position.
use super::builder::{Column, StatementBuilder, table};
use crate::{StreamId, stored::bigint};

/// Stream to which the batch appends events.
pub(crate) struct StreamRow {
    pub stream: StreamId,
    pub version: u64,
    pub last_position: u64,
}

fn columns(sql: &mut StatementBuilder, rows: &[StreamRow]) -> [(&'static str, Column); 4] {
    [
        ("kind", sql.column(rows.iter().map(|row| &*row.stream.aggregate_type))),
        ("id", sql.column(rows.iter().map(|row| &*row.stream.aggregate_id))),
        ("version", sql.column(rows.iter().map(|row| bigint(row.version)))),
        ("last_position", sql.column(rows.iter().map(|row| bigint(row.last_position)))),
    ]
}

/// Adds the insert of new streams. `since` is the first position of the batch.
pub(super) fn insert(sql: &mut StatementBuilder, rows: &[StreamRow], since: u64) {
    let (columns, since) = (columns(sql, rows), sql.value(bigint(since)));
    sql.cte("new_stream", || {
        let rows = table("u", &columns);
        format!(
            "insert into log_stream (aggregate_type, aggregate_id, version, prev_version, last_position, first_position)
  select u.kind, u.id, u.version, 0, u.last_position, {since}
    from head, {rows}"
        )
    });
}

/// Adds the update of existing streams.
pub(super) fn update(sql: &mut StatementBuilder, rows: &[StreamRow]) {
    let columns = columns(sql, rows);
    sql.cte("grown_stream", || {
        let rows = table("u", &columns);
        format!(
            "update log_stream s set prev_version = s.version, version = u.version, last_position = u.last_position
    from head, {rows}
   where s.aggregate_type = u.kind and s.aggregate_id = u.id"
        )
    });
}
