//! Reads of events. Positions are dense and become visible in order, so a reader that continues
//! after its last position misses nothing.
//!
//! Events that only archives have are read from there. The statement that reads rows also reads the
//! end of the archives, so rows that are dropped concurrently are never missed.
use std::sync::Arc;

use domain::decider::Timestamp;
use sqlx::{PgConnection, PgExecutor, Row, postgres::PgRow};

use crate::{
    EventLog, LogError, StoredEvent, StreamId,
    archive::{FLOOR, floor},
    stored::{COLUMNS, bigint, number},
};

/// Reads rows after a position, in order, at most `limit`, in the executor's transaction.
/// Leaves out events that only archives have, and does not decrypt.
///
/// # Errors
/// [`LogError`].
pub async fn read(
    executor: impl PgExecutor<'_>,
    from_exclusive: u64,
    limit: u32,
) -> Result<Vec<StoredEvent>, LogError> {
    let sql =
        format!("select {COLUMNS} from log_event where position > $1 order by position limit $2");
    let query = sqlx::query(&sql).bind(bigint(from_exclusive)).bind(i64::from(limit));
    query.fetch_all(executor).await?.iter().map(StoredEvent::read).collect()
}

/// Reads rows after one position and up to another, in order.
pub(crate) async fn read_range(
    executor: impl PgExecutor<'_>,
    (after, to): (u64, u64),
) -> Result<Vec<StoredEvent>, LogError> {
    let sql = format!(
        "select {COLUMNS} from log_event where position > $1 and position <= $2 order by position"
    );
    let query = sqlx::query(&sql).bind(bigint(after)).bind(bigint(to));
    query.fetch_all(executor).await?.iter().map(StoredEvent::read).collect()
}

/// Returns the last position that only archives had when these rows were read. The rows have
/// it in the column `floor`.
///
/// # Errors
/// If a database operation fails.
pub async fn floor_of(connection: &mut PgConnection, rows: &[PgRow]) -> Result<u64, sqlx::Error> {
    match rows.first() {
        Some(row) => Ok(number(row.try_get("floor")?)),
        // Without rows, the events are in archives by now, or do not exist.
        None => floor(connection).await,
    }
}

impl EventLog {
    /// Returns events after a position, in order, at most `limit`.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn read(
        &self,
        from_exclusive: u64,
        limit: u32,
    ) -> Result<Vec<StoredEvent>, LogError> {
        let sql = format!(
            "select {COLUMNS}, {FLOOR} as floor from log_event where position > $1 order by position limit $2"
        );
        let query = sqlx::query(&sql).bind(bigint(from_exclusive)).bind(i64::from(limit));
        let mut connection = self.pool().acquire().await?;
        let rows = query.fetch_all(&mut *connection).await?;
        let floor = floor_of(&mut connection, &rows).await?;
        let mut events = vec![];
        if floor > from_exclusive {
            let range = (from_exclusive, floor);
            let archived = self.archives().events(&mut connection, range, limit).await?;
            events.extend(archived.into_iter().map(Arc::unwrap_or_clone));
        }
        let left = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(events.len());
        for row in rows.iter().take(left) {
            events.push(StoredEvent::read(row)?);
        }
        self.key_ring().open(&mut connection, &mut events).await?;
        Ok(events)
    }

    /// Returns the events of one aggregate type, together with one event type of another aggregate
    /// type, in order and with one query. Leaves out events that only archives have.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn rows_of(
        &self,
        aggregate_type: &str,
        (other, event_type): (&str, &str),
    ) -> Result<Vec<StoredEvent>, LogError> {
        let sql = format!(
            "select {COLUMNS} from log_event where aggregate_type = $1 \
             or (aggregate_type = $2 and event_type = $3) order by position"
        );
        let query = sqlx::query(&sql).bind(aggregate_type).bind(other).bind(event_type);
        let mut connection = self.pool().acquire().await?;
        let rows = query.fetch_all(&mut *connection).await?;
        let mut events: Vec<StoredEvent> =
            rows.iter().map(StoredEvent::read).collect::<Result<_, _>>()?;
        self.key_ring().open(&mut connection, &mut events).await?;
        Ok(events)
    }

    /// Returns the event at a position, if there is one.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn event(&self, position: u64) -> Result<Option<StoredEvent>, LogError> {
        let found = self.read(position.saturating_sub(1), 1).await?.pop();
        Ok(found.filter(|event| event.position == position))
    }

    /// Returns all events of a stream after a sequence, in order; 0 reads from the first.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn read_stream(
        &self,
        stream: &StreamId,
        after_sequence: u64,
    ) -> Result<Vec<StoredEvent>, LogError> {
        self.read_page(stream, (after_sequence, u64::MAX), u32::MAX).await
    }

    /// Returns events of a stream after a sequence and up to a position, in order, at most
    /// `limit`.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn read_page(
        &self,
        stream: &StreamId,
        (after_sequence, to_position): (u64, u64),
        limit: u32,
    ) -> Result<Vec<StoredEvent>, LogError> {
        let page = self.page_below(stream, (after_sequence, to_position), limit, u64::MAX).await?;
        Ok(page.unwrap_or_default())
    }

    /// Returns all events of a stream, if it has fewer than `below`.
    pub(crate) async fn read_below(
        &self,
        stream: &StreamId,
        below: u32,
    ) -> Result<Option<Vec<StoredEvent>>, LogError> {
        self.page_below(stream, (0, u64::MAX), below, below.into()).await
    }

    /// Returns a page of a stream, if the stream has fewer events than `below`.
    async fn page_below(
        &self,
        stream: &StreamId,
        (after_sequence, to_position): (u64, u64),
        limit: u32,
        below: u64,
    ) -> Result<Option<Vec<StoredEvent>>, LogError> {
        // The stream's row has its first position and its version, even if no event of the stream
        // has a row.
        let sql = format!(
            "select s.version as stream_version, s.last_position, {FLOOR} as floor, e.* from (select) as one \
             left join log_stream s on s.aggregate_type = $1 and s.aggregate_id = $2 left join lateral ( \
               select {COLUMNS} from log_event where coalesce(s.version, 0) < $6 \
               and aggregate_type = $1 and aggregate_id = $2 and sequence > $3 \
               and position between coalesce(s.first_position, 0) and $4 order by sequence limit $5) e on true \
             order by e.sequence"
        );
        let query = sqlx::query(&sql)
            .bind(&stream.aggregate_type)
            .bind(&stream.aggregate_id)
            .bind(bigint(after_sequence))
            .bind(bigint(to_position))
            .bind(i64::from(limit))
            .bind(bigint(below));
        let mut connection = self.pool().acquire().await?;
        let rows = query.fetch_all(&mut *connection).await?;
        let Some(first) = rows.first() else { return Ok(Some(vec![])) };
        let counted = |column: &str| -> Result<u64, sqlx::Error> {
            Ok(first.try_get::<Option<i64>, _>(column)?.map_or(0, number))
        };
        let (version, last) = (counted("stream_version")?, counted("last_position")?);
        // If the stream has more rows than its version counts, its row in `log_stream` is corrupt.
        // The caller then reads the stream to its end.
        if version >= below || rows.len() as u64 >= below {
            return Ok(None);
        }
        let floor = counted("floor")?;
        let there =
            |row: &&PgRow| row.try_get::<Option<i64>, _>("position").ok().flatten().is_some();
        let mut rows: Vec<StoredEvent> =
            rows.iter().filter(there).map(StoredEvent::read).collect::<Result<_, _>>()?;
        let is_complete = rows.first().map_or(version <= after_sequence, |row| {
            row.sequence == after_sequence.saturating_add(1)
        });
        if rows.is_empty() && !is_complete && floor == 0 && last <= to_position {
            let what =
                format!("{stream} ends at sequence {after_sequence}, but its version is {version}");
            return Err(LogError::Damaged { position: last, what });
        }
        if is_complete || floor == 0 {
            self.key_ring().open(&mut connection, &mut rows).await?;
            return Ok(Some(rows));
        }
        let range = (after_sequence, to_position);
        let archived = self.archives().stream(&mut connection, stream, range, limit).await?;
        let mut events: Vec<StoredEvent> = archived.into_iter().map(Arc::unwrap_or_clone).collect();
        let last = events.last().map_or(0, |event| event.sequence);
        let left = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(events.len());
        events.extend(rows.into_iter().filter(|row| row.sequence > last).take(left));
        self.key_ring().open(&mut connection, &mut events).await?;
        Ok(Some(events))
    }

    /// Returns the sequence of a stream's last event in the database, or 0.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn version(&self, stream: &StreamId) -> Result<u64, LogError> {
        let row = sqlx::query(
            "select version from log_stream where aggregate_type = $1 and aggregate_id = $2",
        )
        .bind(&stream.aggregate_type)
        .bind(&stream.aggregate_id)
        .fetch_optional(self.pool())
        .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.map_or(0, number))
    }

    /// Returns the last position that was recorded at or before a time, or 0.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn position_at(&self, time: Timestamp) -> Result<u64, LogError> {
        // Times never decrease along positions.
        let (mut below, mut above) = (0, self.position() + 1);
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            let row = sqlx::query_scalar("select recorded_at from log_event where position = $1");
            let recorded_at = row.bind(bigint(middle)).fetch_optional(self.pool()).await?;
            let recorded_at: Timestamp = match recorded_at {
                Some(recorded_at) => recorded_at,
                None => {
                    let what = || "the event is missing".to_owned();
                    let event = self.event(middle).await?;
                    let damaged = || LogError::Damaged { position: middle, what: what() };
                    event.ok_or_else(damaged)?.recorded_at
                }
            };
            if recorded_at <= time {
                below = middle;
            } else {
                above = middle;
            }
        }
        Ok(below)
    }
}
