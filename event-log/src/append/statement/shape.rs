//! Shape of a statement: the parts that a batch needs. The statement omits the other parts, because
//! an empty part costs the database more than a row.
use crate::append::batch::Batch;

/// Method of checking that new streams do not exist and that idempotency keys are not in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Uniqueness {
    /// The statement queries streams and keys, and returns those that conflict.
    Queried,
    /// On a conflict, the primary keys of the tables reject the whole batch, and the next attempt
    /// uses [`Uniqueness::Queried`]. Most batches have no conflict and therefore save the query.
    ByConstraint,
}

/// Parts of a statement. They determine its text, except for the inline projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub uniqueness: Uniqueness,
    /// `true` if no part has more than one row. The statement then binds plain values, which cost
    /// the database less than arrays.
    pub one_row: bool,
    pub writes: bool,
    pub stream_guards: bool,
    pub keys: bool,
    pub stale_keys: bool,
    pub consumers: bool,
    pub sessions: bool,
    pub events: bool,
    pub new_streams: bool,
    pub grown_streams: bool,
    pub nodes: bool,
}

impl Shape {
    /// Returns the shape of a batch. `inline_rows` is the largest number of rows in a column of an
    /// inline projection.
    pub(crate) fn of(batch: &Batch, uniqueness: Uniqueness, inline_rows: usize) -> Shape {
        let queried = match uniqueness {
            Uniqueness::Queried => batch.new_streams.len(),
            Uniqueness::ByConstraint => 0,
        };
        let guards = batch.stream_guards.len() + queried;
        let rows = [
            inline_rows,
            guards,
            batch.keys.len(),
            batch.stale_keys.len(),
            batch.consumers.len(),
            batch.sessions.len(),
            batch.events.len(),
            batch.new_streams.len(),
            batch.grown_streams.len(),
            batch.nodes.len(),
        ];
        Shape {
            uniqueness,
            one_row: rows.iter().all(|rows| *rows <= 1),
            writes: batch.writes,
            stream_guards: guards > 0,
            keys: !batch.keys.is_empty(),
            stale_keys: !batch.stale_keys.is_empty(),
            consumers: !batch.consumers.is_empty(),
            sessions: !batch.sessions.is_empty(),
            events: !batch.events.is_empty(),
            new_streams: !batch.new_streams.is_empty(),
            grown_streams: !batch.grown_streams.is_empty(),
            nodes: !batch.nodes.is_empty(),
        }
    }
}
