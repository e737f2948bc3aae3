//! Definition of a projection: a pure function over the events of some aggregates, and a table for
//! its rows.
use std::fmt::Debug;

use domain::decider::Timestamp;
use serde::{Serialize, de::DeserializeOwned};

use crate::RecordedEvent;

/// Projection of the events of some aggregates to the rows of a table.
///
/// A row derives from one stream only. An append can therefore update it inline, a process can
/// cache it, and a rebuild can process the streams in any order.
pub trait Projection: Sized + Send + Sync + 'static {
    /// Name in the API and in output. The table is `projection_<name>`.
    const NAME: &'static str;
    /// Version of the rows. If their shape or meaning changes, increment it: the next start
    /// rebuilds the rows.
    const VERSION: i32;
    /// Mode in which the projection follows the log.
    const CLASS: Class;
    /// Aggregate types whose events the projection reads.
    const AGGREGATES: &'static [&'static str];
    /// The columns other than `key` and `data`, in the order of [`Projection::cells`].
    const COLUMNS: &'static [(&'static str, Type)];
    /// Content of the column `data`, as JSON.
    type Row: Serialize + DeserializeOwned + Clone + PartialEq + Debug + Send + Sync;

    /// Keys of the rows that an event may change. A key is the id of the event's stream, optionally
    /// followed by `/` and more. So a rebuild of one row needs that stream only.
    fn keys(event: &RecordedEvent) -> Vec<String>;

    /// Returns the row after the event, or `None` to delete it.
    fn apply(key: &str, row: Option<Self::Row>, event: &RecordedEvent) -> Option<Self::Row>;

    /// Values of the columns, copied from the row for queries.
    fn cells(row: &Self::Row) -> Vec<Cell>;

    fn table() -> String {
        format!("projection_{}", Self::NAME)
    }
}

/// Mode in which a projection follows the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The append statement writes the rows, so they always match the head.
    Synchronous,
    /// The projector writes the rows, page by page.
    Asynchronous,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Text,
    Bigint,
    Boolean,
    Time,
}

/// Value of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Text(Option<String>),
    Bigint(Option<i64>),
    Boolean(bool),
    Time(Option<Timestamp>),
}

impl Class {
    /// Name in the API and in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Synchronous => "synchronous",
            Class::Asynchronous => "asynchronous",
        }
    }
}

impl Type {
    /// Name in SQL.
    pub fn sql(self) -> &'static str {
        match self {
            Type::Text => "text",
            Type::Bigint => "bigint",
            Type::Boolean => "boolean",
            Type::Time => "timestamptz",
        }
    }
}

impl Cell {
    pub fn text(value: impl ToString) -> Cell {
        Cell::Text(Some(value.to_string()))
    }

    pub fn maybe(value: Option<impl ToString>) -> Cell {
        Cell::Text(value.map(|value| value.to_string()))
    }

    pub fn number(value: u64) -> Cell {
        // Saturates: a null would mean that there is no value.
        Cell::Bigint(Some(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}
