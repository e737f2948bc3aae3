//! The events of streams that are known by name, each by its index: what is read does not grow with the rest of the log.
use event_log::{KeyRing, LogError, sealed::Keys};
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{COLUMNS, Recorded, bigint, keys, read};

/// Events that were read.
pub(crate) struct Found {
    pub events: Vec<Recorded>,
    /// The sequence and the position of the last one that is stored: what is stored may come to no event of today.
    pub last: Option<(u64, u64)>,
    /// Whether there may be more.
    pub full: bool,
}

/// The events of one stream after a sequence, in order: at most `limit`, and none after a position.
pub(crate) async fn page(
    connection: &mut PgConnection,
    ring: &KeyRing,
    (aggregate, id): (&str, &str),
    (after_sequence, last): (u64, u64),
    limit: u32,
) -> Result<Found, LogError> {
    let sql = format!(
        "select {COLUMNS} from log_event where aggregate_type = $1 and aggregate_id = $2 \
         and sequence > $3 and position <= $4 order by sequence limit $5"
    );
    let rows = sqlx::query(&sql)
        .bind(aggregate)
        .bind(id)
        .bind(bigint(after_sequence))
        .bind(bigint(last))
        .bind(i64::from(limit))
        .fetch_all(&mut *connection)
        .await?;
    let keys = keys(connection, ring, &rows).await?;
    found(&rows, &keys, limit)
}

/// The events of these streams of one kind after a position and not after another, and those of these types also
/// where they are older: at most `limit`, oldest first.
pub(crate) async fn many(
    connection: &mut PgConnection,
    ring: &KeyRing,
    (aggregate, ids): (&str, &[String]),
    (after, last): (u64, u64),
    older: &[&str],
    limit: u32,
) -> Result<Found, LogError> {
    if ids.is_empty() {
        return Ok(Found { events: vec![], last: None, full: false });
    }
    // Found first and put in order then: a plan that walks along the positions would read the whole log.
    let sql = format!(
        "with found as materialized (select * from log_event \
           where aggregate_type = $1 and aggregate_id = any($2) and position <= $4 \
           and (position > $3 or event_type = any($5))) \
         select {COLUMNS} from found order by position limit $6"
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
    let keys = keys(connection, ring, &rows).await?;
    found(&rows, &keys, limit)
}

fn found(rows: &[PgRow], keys: &Keys, limit: u32) -> Result<Found, LogError> {
    let number = |row: &PgRow, at: usize| -> Result<u64, sqlx::Error> {
        Ok(row.try_get::<i64, _>(at)?.max(0).cast_unsigned())
    };
    let last = rows.last().map(|row| Ok::<_, sqlx::Error>((number(row, 1)?, number(row, 0)?)));
    let full = u32::try_from(rows.len()).is_ok_and(|read| read >= limit);
    Ok(Found { events: read(rows, keys, |_, _| true)?, last: last.transpose()?, full })
}
