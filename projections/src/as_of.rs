//! A view as it was after a position: the same fold as live, into a table that is gone when the look is over.
//!
//! What is read is bounded: for one row, the stream that it is a function of; for all, the events of the view's
//! aggregates up to the position, a page at a time. Whoever stops asking ends it: everything is in one transaction.
use event_log::{LogError, Source};
use serde_json::value::RawValue;
use sqlx::{Postgres, Row, Transaction};

use crate::{
    catalogue::view,
    fact::streams,
    fold::{Folding, View},
    kept::{self, Kept},
    rebuild::{RebuildError, head, page},
    swap,
};

/// How many events of one stream are taken at once.
const PAGE: u32 = 1_000;
/// Position of the newest erasure fence: data that was read before it must not be stored.
const FENCE: &str = "select coalesce(max(fence), 0) from subject_key";

/// A view being made as it was.
pub struct Past {
    tx: Transaction<'static, Postgres>,
    source: Source,
    view: Box<dyn View>,
    folding: Box<dyn Folding>,
    table: String,
    of: Of,
    /// The last position that its rows are to include.
    position: u64,
    /// The last row that was given out.
    given: Option<String>,
    /// The newest fence of an erasure when the look began.
    fence: i64,
}

/// What of it.
enum Of {
    /// Every row; events up to here are folded.
    All { at: u64 },
    /// One row: the events of its stream up to this sequence are folded.
    Key { key: String, kind: usize, sequence: u64 },
}

/// How far a look is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Folded {
    /// So many events, those of other aggregates too.
    pub events: u64,
    /// Of so many.
    pub total: u64,
}

/// A row as it was.
#[derive(Debug)]
pub struct PastRow {
    /// Its key.
    pub key: String,
    /// What it said.
    pub data: Box<RawValue>,
}

impl Past {
    /// Begin to make a view as it was after a position, or only the row of a key.
    ///
    /// # Errors
    /// [`RebuildError`].
    pub async fn begin(
        source: impl Into<Source>,
        name: &str,
        position: u64,
        key: Option<String>,
    ) -> Result<Past, RebuildError> {
        let source = source.into();
        let view = view(name).ok_or_else(|| RebuildError::Unknown(name.into()))?;
        let mut tx = source.pool.begin().await?;
        let position = position.min(head(&mut tx).await?);
        let live = view.table();
        let table = format!("{live}_then");
        // Whoever reads the rows too slowly must not keep the transaction for ever.
        let sql = format!(
            "set local idle_in_transaction_session_timeout = '60s'; \
             create temporary table {table} \
             (like {live} including all excluding indexes, primary key (key)) on commit drop"
        );
        sqlx::Executor::execute(&mut *tx, &*sql).await?;
        let of = match key {
            Some(key) => Of::Key { key, kind: 0, sequence: 0 },
            None => Of::All { at: 0 },
        };
        let folding = view.folding();
        Ok(Past { tx, source, view, folding, table, of, position, given: None, fence: 0 })
    }

    /// Begin to make all rows of a view as of a position in a table that stays.
    pub(crate) async fn kept(
        source: impl Into<Source>,
        name: &str,
        position: u64,
    ) -> Result<Past, RebuildError> {
        let source = source.into();
        let view = view(name).ok_or_else(|| RebuildError::Unknown(name.into()))?;
        let mut tx = source.pool.begin().await?;
        let fence = sqlx::query_scalar(FENCE).fetch_one(&mut *tx).await?;
        let position = position.min(head(&mut tx).await?);
        let (live, table) = (view.table(), kept::table(&view.table(), position));
        let sql = format!(
            "create table {table} (like {live} including all excluding indexes, primary key (key))"
        );
        let made = sqlx::Executor::execute(&mut *tx, &*sql).await;
        made.map_err(|error| match kept::is_there(&error) {
            true => RebuildError::AlreadyKept { table: table.clone() },
            false => error.into(),
        })?;
        // Whoever may read the view may read what it was.
        swap::grant(&mut tx, &live, &table).await?;
        let folding = view.folding();
        let of = Of::All { at: 0 };
        Ok(Past { tx, source, view, folding, table, of, position, given: None, fence })
    }

    /// Keep the table.
    pub(crate) async fn commit(mut self) -> Result<Kept, RebuildError> {
        let count = format!("select count(*) from {}", self.table);
        let rows = sqlx::query(&count).fetch_one(&mut *self.tx).await?.try_get::<i64, _>(0)?;
        // An erasure that begins after this lock finds the table; rows of before one that began earlier are not kept.
        let lock = "set local lock_timeout = '2s'; lock table subject_key in share mode";
        sqlx::Executor::execute(&mut *self.tx, lock).await?;
        let fence: i64 = sqlx::query_scalar(FENCE).fetch_one(&mut *self.tx).await?;
        if fence != self.fence {
            return Err(RebuildError::Busy(self.view.name()));
        }
        self.tx.commit().await?;
        let rows = rows.max(0).cast_unsigned();
        Ok(Kept { table: self.table, position: self.position, rows })
    }

    /// The last position that its rows include.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Fold the next page. `None`: everything is folded.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn fold(&mut self) -> Result<Option<Folded>, LogError> {
        let Past { tx, source, view, folding, table, of, position, .. } = self;
        match of {
            Of::All { at } if *at < *position => {
                *at = page(tx, source, (*at, *position), &**view, (&mut **folding, table)).await?;
                Ok(Some(Folded { events: *at, total: *position }))
            }
            Of::All { .. } => Ok(None),
            Of::Key { key, kind, sequence } => {
                let Some(aggregate) = view.aggregates().get(*kind) else { return Ok(None) };
                let stream = (*aggregate, of_stream(key));
                let found = streams::page(tx, source, stream, (*sequence, *position), PAGE).await?;
                match found.last.filter(|_| found.full) {
                    Some((last, _)) => *sequence = last,
                    // An id is of one kind only; the others have no such stream.
                    None => (*kind, *sequence) = (*kind + 1, 0),
                }
                if !found.events.is_empty() {
                    let events: Vec<_> = found.events.iter().collect();
                    folding.project(tx, table, &events).await?;
                }
                let events = found.last.map_or(*position, |(_, position)| position);
                Ok(Some(Folded { events, total: *position }))
            }
        }
    }

    /// The next rows, in the order of their keys, when everything is folded. Empty: there are no more.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn rows(&mut self, limit: u32) -> Result<Vec<PastRow>, LogError> {
        let key = match &self.of {
            Of::All { .. } => None,
            Of::Key { key, .. } => Some(key),
        };
        let sql = format!(
            "select key, data::text from {} where ($1::text is null or key = $1) \
             and ($2::text is null or key > $2) order by key limit $3",
            self.table
        );
        let rows = sqlx::query(&sql)
            .bind(key)
            .bind(&self.given)
            .bind(i64::from(limit))
            .fetch_all(&mut *self.tx)
            .await?;
        let row = |row: &sqlx::postgres::PgRow| {
            let data = RawValue::from_string(row.try_get(1)?);
            let data = data.map_err(|error| sqlx::Error::Decode(error.into()))?;
            Ok(PastRow { key: row.try_get(0)?, data })
        };
        let rows: Vec<PastRow> = rows.iter().map(row).collect::<Result<_, sqlx::Error>>()?;
        self.given = rows.last().map(|row| row.key.clone()).or(self.given.take());
        Ok(rows)
    }
}

/// The id of the stream that the row of a key is a function of ([`crate::Projection::keys`]).
fn of_stream(key: &str) -> &str {
    key.split('/').next().unwrap_or(key)
}
