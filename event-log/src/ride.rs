//! What rides in an append: synchronous views, exact with the log because they are written by its statement.
//!
//! A row of such a view is a function of one stream only, so the stream's guard proves the cached row
//! current. The statement never changes; each batch brings arrays for it.
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use sqlx::PgConnection;

use crate::{Stored, StreamId};

/// One array of a batch, bound to one parameter of a view's SQL.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// `text[]`; cast it in SQL for `json`.
    Text(Vec<Option<String>>),
    /// `bigint[]`.
    Bigint(Vec<Option<i64>>),
    /// `integer[]`.
    Integer(Vec<Option<i32>>),
    /// `boolean[]`.
    Boolean(Vec<Option<bool>>),
    /// `bytea[]`.
    Bytes(Vec<Option<Vec<u8>>>),
    /// `timestamptz[]`.
    Time(Vec<Option<DateTime<Utc>>>),
}

impl Column {
    /// How many rows it has.
    pub fn len(&self) -> usize {
        match self {
            Column::Text(values) => values.len(),
            Column::Bigint(values) => values.len(),
            Column::Integer(values) => values.len(),
            Column::Boolean(values) => values.len(),
            Column::Bytes(values) => values.len(),
            Column::Time(values) => values.len(),
        }
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Which cached rows are no longer known to be current.
#[derive(Debug, Clone, Copy)]
pub enum Forget<'a> {
    /// All: too much happened elsewhere.
    All,
    /// Those of these streams.
    Streams(&'a [StreamId]),
}

/// A view whose rows are written by the append statement.
///
/// For each try of a batch the log calls [`SyncView::prepare`]; then either [`SyncView::committed`] with the
/// same events, or nothing: the events were not written, and the next `prepare` may be for others.
pub trait SyncView: Send + Sync + 'static {
    /// Its name in messages.
    fn name(&self) -> &'static str;

    /// Data-modifying statements that each take their rows `from head, unnest($1::text[], …)`: `head` is empty
    /// when the batch is not written. Parameters are numbered from `$1` over all statements of the view.
    /// Each must touch a row at most once, and no two of them the same row.
    fn statements(&self) -> Vec<String>;

    /// The arrays for this batch, one per parameter; if all are empty, the view is left out. Rows that are not cached are read with the connection.
    fn prepare<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        events: &'a [Stored],
    ) -> BoxFuture<'a, Result<Vec<Column>, sqlx::Error>>;

    /// The batch is durable: what was prepared may be cached now.
    fn committed(&self, events: &[Stored]);

    /// Others wrote: cached rows of these streams must be read again.
    fn forget(&self, what: Forget<'_>);
}
