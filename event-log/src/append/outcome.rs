//! Outcome of a statement: the row that it returns, or the class of its error.
use sqlx::{
    Row,
    postgres::{PgDatabaseError, PgRow, PgSeverity},
};

use super::{
    conflicts::{Conflicts, UsedKey},
    statement::{Shape, Text, Uniqueness},
};

/// Outcome of sending a batch.
pub(crate) enum Outcome {
    /// The batch is durable, except for its stale commits.
    Committed(Conflicts),
    /// Nothing was written: these guards failed.
    Conflicts(Conflicts),
    /// Nothing was written: the head is not the expected one.
    HeadMoved,
    /// Nothing was written: a stream that should be new exists, or a key is in use. The next
    /// attempt determines the stream or the key.
    NotUnique,
    /// Nothing was written: the client or the database rejected the statement, or a batch that only
    /// checks guards failed.
    Rejected(sqlx::Error),
    /// The statement may have been committed.
    InDoubt(sqlx::Error),
}

// Columns of the result row. Each has the name of the common table expression with its rows.
const STALE_STREAM: &str = "stale_stream";
const USED_KEY: &str = "used_key";
const STALE_KEY: &str = "stale_key";
const MOVED_CONSUMER: &str = "moved_consumer";
const MOVED_SESSION: &str = "moved_session";

/// Adds the final select. It returns one row, which [`Outcome::read`] reads.
pub(super) fn push_select(text: &mut Text, writes: bool) {
    // A batch that writes nothing does not update the head: only its guards count.
    let committed =
        if writes { "(select count(*) from head) as committed" } else { "1::bigint as committed" };
    let reports = [STALE_STREAM, USED_KEY, STALE_KEY, MOVED_CONSUMER, MOVED_SESSION];
    text.select(committed, &reports);
}

impl Outcome {
    /// Reads the row that the statement returned.
    pub(super) fn read(rows: &[PgRow]) -> Result<Outcome, sqlx::Error> {
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let committed = row.try_get::<i64, _>("committed")? == 1;
        let used = list::<UsedKey>(row, USED_KEY)?.into_iter().chain(list(row, STALE_KEY)?);
        let stale = list::<(String, String, u64)>(row, STALE_STREAM)?.into_iter();
        let conflicts = Conflicts {
            stale: stale.map(|(kind, id, version)| ((kind, id), version)).collect(),
            used_keys: used.map(|key| ((key.principal.clone(), key.key.clone()), key)).collect(),
            consumers: list(row, MOVED_CONSUMER)?.into_iter().collect(),
            sessions: list(row, MOVED_SESSION)?.into_iter().collect(),
        };
        Ok(if committed && conflicts.has_only_keys() {
            // The only conflicts of a committed batch are used keys of its stale commits.
            Outcome::Committed(conflicts)
        } else if !committed && conflicts.is_empty() {
            Outcome::HeadMoved
        } else {
            Outcome::Conflicts(conflicts)
        })
    }

    /// Classifies the error of a statement that was sent.
    pub(super) fn of_error(error: sqlx::Error, shape: Shape) -> Outcome {
        if shape.uniqueness == Uniqueness::ByConstraint && is_not_unique(&error) {
            Outcome::NotUnique
        } else if is_rolled_back(&error) || !shape.writes {
            Outcome::Rejected(error)
        } else {
            Outcome::InDoubt(error)
        }
    }
}

fn list<T: serde::de::DeserializeOwned>(row: &PgRow, column: &str) -> Result<Vec<T>, sqlx::Error> {
    match row.try_get::<Option<String>, _>(column)? {
        None => Ok(Vec::new()),
        Some(json) => {
            serde_json::from_str(&json).map_err(|error| sqlx::Error::Decode(error.into()))
        }
    }
}

/// Returns true if the error proves that nothing was written. A FATAL error does not prove it: the
/// database may have committed before it closed the connection.
fn is_rolled_back(error: &sqlx::Error) -> bool {
    match error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()) {
        Some(error) => matches!(error.severity(), PgSeverity::Error),
        // The client could not encode a value, so it sent nothing.
        None => matches!(error, sqlx::Error::Encode(_)),
    }
}

fn is_not_unique(error: &sqlx::Error) -> bool {
    let constraint = error.as_database_error().and_then(|error| error.constraint());
    constraint.is_some_and(|name| matches!(name, "log_stream_pkey" | "log_command_pkey"))
}

/// Returns true if a retry may succeed: deadlock, serialization failure, lock timeout, or a
/// partition that was attached while rows were routed to the default partition. Nothing was
/// written.
pub(super) fn is_transient(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    // A check constraint of a table has a name; the bound of a partition has none.
    let attached = |code: &str| code == "23514" && error.constraint().is_none();
    error
        .code()
        .is_some_and(|code| matches!(&*code, "40P01" | "40001" | "55P03") || attached(&code))
}

/// Returns true if a commit in the batch may cause the error, as opposed to an unavailable
/// database.
pub(super) fn is_rejection(error: &sqlx::Error) -> bool {
    // An inline projection that cannot decode a row fails before the appender sends anything. That
    // row belongs to a stream of the batch.
    is_rolled_back(error)
        || matches!(error, sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. })
}
