//! Inline projections. The append statement writes them, so they always match the log.
//!
//! A row derives from one stream only, so the stream's guard proves that the cached row is current.
//! The SQL never changes; each batch supplies arrays for it.
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use sqlx::PgConnection;

use crate::{StoredEvent, StreamId};

/// An array of a batch, bound to a parameter of the projection's SQL.
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
    /// Number of rows.
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

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Cached rows that may be outdated.
#[derive(Debug, Clone, Copy)]
pub enum Invalidate<'a> {
    All,
    Streams(&'a [StreamId]),
}

/// A projection whose rows the append statement writes.
///
/// For each attempt of a batch, the log calls [`InlineProjection::prepare`]. If the events were
/// written, it then calls [`InlineProjection::committed`] with them. If not, it calls nothing, and
/// the next `prepare` may be for other events.
pub trait InlineProjection: Send + Sync + 'static {
    /// Name for messages.
    fn name(&self) -> &'static str;

    /// Data-modifying statements that each select their rows `from head, unnest($1::text[], …)`.
    /// `head` is empty when the batch is not written. Parameters are numbered from `$1` across all
    /// statements of the projection. A batch must not change a row twice.
    fn statements(&self) -> Vec<String>;

    /// Returns the arrays for this batch, one per parameter. If all arrays are empty, the append
    /// statement omits the projection. `connection` reads rows that are not cached.
    fn prepare<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        events: &'a [StoredEvent],
    ) -> BoxFuture<'a, Result<Vec<Column>, sqlx::Error>>;

    /// Caches the prepared rows, because the batch is durable.
    fn committed(&self, events: &[StoredEvent]);

    /// Removes cached rows, because another server may have changed them or a key was shredded.
    fn forget(&self, what: Invalidate<'_>);
}
