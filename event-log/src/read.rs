//! Reading what is there. Positions are dense and become visible in order, so a reader that continues after its
//! last position misses nothing.
use domain::decider::Timestamp;
use sqlx::{PgExecutor, Row};

use crate::{
    EventLog, LogError, Stored, StreamId,
    stored::{COLUMNS, bigint, number},
};

/// Events after a position, in order, at most `limit`, as one transaction or pool sees them; what is sealed in them is
/// not opened.
///
/// # Errors
/// [`LogError`].
pub async fn read(
    executor: impl PgExecutor<'_>,
    from_exclusive: u64,
    limit: u32,
) -> Result<Vec<Stored>, LogError> {
    let sql =
        format!("select {COLUMNS} from log_event where position > $1 order by position limit $2");
    let query = sqlx::query(&sql).bind(bigint(from_exclusive)).bind(i64::from(limit));
    query.fetch_all(executor).await?.iter().map(Stored::read).collect()
}

impl EventLog {
    /// Events after a position, in order, at most `limit`.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn read(&self, from_exclusive: u64, limit: u32) -> Result<Vec<Stored>, LogError> {
        let mut connection = self.pool().acquire().await?;
        let mut events = read(&mut *connection, from_exclusive, limit).await?;
        self.ring().open(&mut connection, &mut events).await?;
        Ok(events)
    }

    /// All events of a stream after a sequence, in order; 0: from the first.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn read_stream(
        &self,
        stream: &StreamId,
        after_sequence: u64,
    ) -> Result<Vec<Stored>, LogError> {
        self.read_page(stream, (after_sequence, u64::MAX), u32::MAX).await
    }

    /// Events of a stream after a sequence, in order, at most `limit`, and none after a position.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn read_page(
        &self,
        stream: &StreamId,
        (after_sequence, to_position): (u64, u64),
        limit: u32,
    ) -> Result<Vec<Stored>, LogError> {
        let sql = format!(
            "select {COLUMNS} from log_event where aggregate_type = $1 and aggregate_id = $2 \
             and sequence > $3 and position <= $4 order by sequence limit $5"
        );
        let query = sqlx::query(&sql)
            .bind(&stream.aggregate_type)
            .bind(&stream.aggregate_id)
            .bind(bigint(after_sequence))
            .bind(bigint(to_position))
            .bind(i64::from(limit));
        let mut connection = self.pool().acquire().await?;
        let rows = query.fetch_all(&mut *connection).await?;
        let mut events = rows.iter().map(Stored::read).collect::<Result<Vec<_>, _>>()?;
        self.ring().open(&mut connection, &mut events).await?;
        Ok(events)
    }

    /// The sequence of a stream's last event, at the database; 0: there is none.
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

    /// The last position that was recorded at or before a moment; 0: none was.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn position_at(&self, time: Timestamp) -> Result<u64, LogError> {
        // Times never go backwards along positions.
        let (mut below, mut above) = (0, self.position() + 1);
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            let row = sqlx::query("select recorded_at from log_event where position = $1")
                .bind(bigint(middle))
                .fetch_one(self.pool())
                .await?;
            if row.try_get::<Timestamp, _>(0)? <= time {
                below = middle;
            } else {
                above = middle;
            }
        }
        Ok(below)
    }
}
