//! A projection as of a position. The events are applied as in a live projection, to a separate
//! table.
//!
//! The reads are bounded. One row needs only its own stream. All rows need the events of the
//! projection's aggregates up to the position, one page at a time. Everything runs in one
//! transaction, so a caller ends the query by dropping [`AsOfQuery`].
use event_log::{LogError, Source};
use serde_json::value::RawValue;
use sqlx::{Postgres, Row, Transaction};

use crate::{
    as_of_table::{self, AsOfTable},
    catalogue::view,
    event::streams,
    fold::{DynProjection, RowWriter},
    rebuild::{RebuildError, head, page},
    swap,
};

/// Maximum number of events of one stream that are read at once.
const PAGE: u32 = 1_000;
/// Selects the newest erasure fence, a log position. Every erasure advances the fence. A table that
/// was computed before an erasure must not be committed.
const FENCE: &str = "select coalesce(max(fence), 0) from subject_key";

pub struct AsOfQuery {
    tx: Transaction<'static, Postgres>,
    source: Source,
    view: Box<dyn DynProjection>,
    writer: Box<dyn RowWriter>,
    table: String,
    of: AsOfScope,
    /// Last position that the rows will include.
    position: u64,
    /// Key of the last row that was returned.
    last_key: Option<String>,
    /// Newest erasure fence when the query began.
    fence: i64,
}

/// Rows that the query builds.
enum AsOfScope {
    /// Every row. The query applies the events up to this position.
    All { at: u64 },
    /// A single row. The query applies the events of its stream up to this sequence.
    Key { key: String, kind: usize, sequence: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsOfProgress {
    /// Number of events processed, including those of other aggregates.
    pub events: u64,
    /// Number of events to process.
    pub total: u64,
}

/// A row as of the position of the query.
#[derive(Debug)]
pub struct AsOfRow {
    pub key: String,
    /// The row as JSON.
    pub data: Box<RawValue>,
}

impl AsOfQuery {
    /// Begins an as-of query of a projection, for all its rows or for one key.
    ///
    /// # Errors
    /// [`RebuildError`].
    pub async fn begin(
        source: impl Into<Source>,
        name: &str,
        position: u64,
        key: Option<String>,
    ) -> Result<AsOfQuery, RebuildError> {
        let source = source.into();
        let view = view(name).ok_or_else(|| RebuildError::Unknown(name.into()))?;
        let mut tx = source.pool.begin().await?;
        let position = position.min(head(&mut tx).await?);
        let live = view.table();
        let table = format!("{live}_then");
        // A caller that reads the rows too slowly must not hold the transaction open indefinitely.
        let sql = format!(
            "set local idle_in_transaction_session_timeout = '60s'; \
             create temporary table {table} \
             (like {live} including all excluding indexes, primary key (key)) on commit drop"
        );
        sqlx::Executor::execute(&mut *tx, &*sql).await?;
        let of = match key {
            Some(key) => AsOfScope::Key { key, kind: 0, sequence: 0 },
            None => AsOfScope::All { at: 0 },
        };
        let writer = view.writer();
        Ok(AsOfQuery { tx, source, view, writer, table, of, position, last_key: None, fence: 0 })
    }

    /// Begins to write all rows of a projection as of a position to a permanent table.
    pub(crate) async fn into_table(
        source: impl Into<Source>,
        name: &str,
        position: u64,
    ) -> Result<AsOfQuery, RebuildError> {
        let source = source.into();
        let view = view(name).ok_or_else(|| RebuildError::Unknown(name.into()))?;
        let mut tx = source.pool.begin().await?;
        let fence = sqlx::query_scalar(FENCE).fetch_one(&mut *tx).await?;
        let position = position.min(head(&mut tx).await?);
        let (live, table) = (view.table(), as_of_table::table(&view.table(), position));
        let sql = format!(
            "create table {table} (like {live} including all excluding indexes, primary key (key))"
        );
        let created = sqlx::Executor::execute(&mut *tx, &*sql).await;
        created.map_err(|error| match as_of_table::is_existing_table(&error) {
            true => RebuildError::TableExists { table: table.clone() },
            false => error.into(),
        })?;
        // The roles that may read the projection may also read its earlier rows.
        swap::grant(&mut tx, &live, &table).await?;
        let writer = view.writer();
        let of = AsOfScope::All { at: 0 };
        Ok(AsOfQuery { tx, source, view, writer, table, of, position, last_key: None, fence })
    }

    /// Commits the table. Fails if an erasure began after the query.
    pub(crate) async fn commit(mut self) -> Result<AsOfTable, RebuildError> {
        let count = format!("select count(*) from {}", self.table);
        let rows = sqlx::query(&count).fetch_one(&mut *self.tx).await?.try_get::<i64, _>(0)?;
        // An erasure that begins after this lock finds the table. If an erasure began earlier, the
        // rows may hold erased data and are not stored.
        let lock = "set local lock_timeout = '2s'; lock table subject_key in share mode";
        sqlx::Executor::execute(&mut *self.tx, lock).await?;
        let fence: i64 = sqlx::query_scalar(FENCE).fetch_one(&mut *self.tx).await?;
        if fence != self.fence {
            return Err(RebuildError::Busy(self.view.name()));
        }
        self.tx.commit().await?;
        let rows = rows.max(0).cast_unsigned();
        Ok(AsOfTable { table: self.table, position: self.position, rows })
    }

    /// Last position that the rows include.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Applies the next page of events. Returns `None` after the last page.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn fold(&mut self) -> Result<Option<AsOfProgress>, LogError> {
        let AsOfQuery { tx, source, view, writer, table, of, position, .. } = self;
        match of {
            AsOfScope::All { at } if *at < *position => {
                *at = page(tx, source, (*at, *position), &**view, (&mut **writer, table)).await?;
                Ok(Some(AsOfProgress { events: *at, total: *position }))
            }
            AsOfScope::All { .. } => Ok(None),
            AsOfScope::Key { key, kind, sequence } => {
                let Some(aggregate) = view.aggregates().get(*kind) else { return Ok(None) };
                let stream = (*aggregate, of_stream(key));
                let found = streams::page(tx, source, stream, (*sequence, *position), PAGE).await?;
                match found.last.filter(|_| found.full) {
                    Some((last, _)) => *sequence = last,
                    // Continue with the next aggregate type. An id belongs to one type only, so at
                    // most one of these streams has events.
                    None => (*kind, *sequence) = (*kind + 1, 0),
                }
                if !found.events.is_empty() {
                    let events: Vec<_> = found.events.iter().collect();
                    writer.project(tx, table, &events).await?;
                }
                let events = found.last.map_or(*position, |(_, position)| position);
                Ok(Some(AsOfProgress { events, total: *position }))
            }
        }
    }

    /// Returns the next page of rows, ordered by key. Call it after [`AsOfQuery::fold`] has
    /// returned `None`. An empty page means that no row is left.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn rows(&mut self, limit: u32) -> Result<Vec<AsOfRow>, LogError> {
        let key = match &self.of {
            AsOfScope::All { .. } => None,
            AsOfScope::Key { key, .. } => Some(key),
        };
        let sql = format!(
            "select key, data::text from {} where ($1::text is null or key = $1) \
             and ($2::text is null or key > $2) order by key limit $3",
            self.table
        );
        let rows = sqlx::query(&sql)
            .bind(key)
            .bind(&self.last_key)
            .bind(i64::from(limit))
            .fetch_all(&mut *self.tx)
            .await?;
        let row = |row: &sqlx::postgres::PgRow| {
            let data = RawValue::from_string(row.try_get(1)?);
            let data = data.map_err(|error| sqlx::Error::Decode(error.into()))?;
            Ok(AsOfRow { key: row.try_get(0)?, data })
        };
        let rows: Vec<AsOfRow> = rows.iter().map(row).collect::<Result<_, sqlx::Error>>()?;
        self.last_key = rows.last().map(|row| row.key.clone()).or(self.last_key.take());
        Ok(rows)
    }
}

/// Id of the stream that the row of a key derives from ([`crate::Projection::keys`]).
fn of_stream(key: &str) -> &str {
    key.split('/').next().unwrap_or(key)
}
