//! What a view is: a pure fold over the events of some aggregates, and the table its rows are in.
use std::fmt::Debug;

use domain::decider::Timestamp;
use serde::{Serialize, de::DeserializeOwned};

use crate::Recorded;

/// One fold.
///
/// A row is a function of one stream only: that is what lets it ride in an append, be cached and be rebuilt in
/// any order of streams.
pub trait Projection: Sized + Send + Sync + 'static {
    /// What people call it. Its table is `projection_<name>`.
    const NAME: &'static str;
    /// Raised when rows change their shape or meaning: they are made again at the next start.
    const VERSION: i32;
    /// How it follows the log.
    const CLASS: Class;
    /// Whose events it wants.
    const AGGREGATES: &'static [&'static str];
    /// The columns beside `key` and `data`, in the order of [`Projection::cells`].
    const COLUMNS: &'static [(&'static str, Type)];
    /// What is kept as JSON in `data`.
    type Row: Serialize + DeserializeOwned + Clone + PartialEq + Debug + Send + Sync;

    /// The rows that an event may change. A key is the id of the event's stream, and may go on after a `/`: so the
    /// row of a key is made again from that stream alone.
    fn keys(event: &Recorded) -> Vec<String>;

    /// The row after the event. `None`: there is none.
    fn apply(key: &str, row: Option<Self::Row>, event: &Recorded) -> Option<Self::Row>;

    /// What questions ask for, copied out of the row.
    fn cells(row: &Self::Row) -> Vec<Cell>;

    /// Its table.
    fn table() -> String {
        format!("projection_{}", Self::NAME)
    }
}

/// How a view follows the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Its rows are written by the append statement: exact with the log.
    Synchronous,
    /// It follows, page by page.
    Asynchronous,
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// `text`
    Text,
    /// `bigint`
    Bigint,
    /// `boolean`
    Boolean,
    /// `timestamptz`
    Time,
}

/// One value of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// `text`
    Text(Option<String>),
    /// `bigint`
    Bigint(Option<i64>),
    /// `boolean`
    Boolean(bool),
    /// `timestamptz`
    Time(Option<Timestamp>),
}

impl Class {
    /// As it is written everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Synchronous => "synchronous",
            Class::Asynchronous => "asynchronous",
        }
    }
}

impl Type {
    /// As SQL writes it.
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
    /// A text that is there.
    pub fn text(value: impl ToString) -> Cell {
        Cell::Text(Some(value.to_string()))
    }

    /// A text that may be absent.
    pub fn maybe(value: Option<impl ToString>) -> Cell {
        Cell::Text(value.map(|value| value.to_string()))
    }

    /// A position or a count.
    pub fn number(value: u64) -> Cell {
        // As large as the column holds: a null would say that there is none.
        Cell::Bigint(Some(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}
