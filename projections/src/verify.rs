//! Verifies the rows of a projection: applies the log to a temporary table in one database
//! snapshot, and compares the two tables.
use event_log::{Source, archive::block_discard};
use futures::future::BoxFuture;
use serde_json::Value;
use sqlx::{PgConnection, Row};

use crate::{
    as_of_table,
    catalogue::{PREVIOUS, view},
    fold::DynProjection,
    json_diff::{FieldChange, differences},
    rebuild::{Progress, RebuildError, head, live_position, page},
};

/// Maximum number of differences that are reported.
const MAX_DIFFERENCES: i64 = 100;

#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    /// Number of rows according to the log.
    pub rows: u64,
    /// Position up to which rows and log were compared.
    pub position: u64,
    /// Rows that do not match the log, at most 100. Empty if the rows are correct.
    pub differences: Vec<Difference>,
}

/// A row that does not match the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// The table lacks a row that the log produces.
    #[error("{key} is missing")]
    Missing { key: String },
    /// The table has a row that the log does not produce.
    #[error("{key} is unexpected")]
    Extra { key: String },
    /// The row has other values.
    #[error("{key}: {what}")]
    Changed {
        key: String,
        /// Differing values, each with the value according to the log.
        what: String,
    },
}

impl Difference {
    pub fn key(&self) -> &str {
        match self {
            Difference::Missing { key }
            | Difference::Extra { key }
            | Difference::Changed { key, .. } => key,
        }
    }
}

/// Compares the rows of a projection with the log.
///
/// # Errors
/// [`RebuildError`].
pub fn verify<'a>(
    source: impl Into<Source>,
    name: &'a str,
    progress: impl FnMut(Progress) + Send + 'a,
) -> BoxFuture<'a, Result<Verified, RebuildError>> {
    verify_rows(source.into(), name, None, progress)
}

/// Table with earlier rows of a projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierRows {
    pub table: String,
    /// Last position that the rows include.
    pub position: u64,
}

/// Returns the tables with earlier rows of a projection: those as of a position, and the
/// previous rows if an erasure followed them. Previous rows without an erasure may contain an
/// error that the rebuild corrected.
///
/// # Errors
/// If a database operation fails.
pub async fn copies(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Vec<EarlierRows>, sqlx::Error> {
    let Some(view) = view(name) else { return Ok(vec![]) };
    let live = view.table();
    let positions = as_of_table::positions(&mut *connection, name).await?.into_iter();
    let mut copies: Vec<EarlierRows> = positions
        .map(|position| EarlierRows { table: as_of_table::table(&live, position), position })
        .collect();
    let table = format!("{live}_previous");
    let previous = "select position from log_consumer where name = $1 and version = $2 and shard = $3 \
                    and to_regclass($4) is not null and position <= (select max(fence) from subject_key)";
    let previous: Option<i64> = sqlx::query_scalar(previous)
        .bind(name)
        .bind(view.version())
        .bind(PREVIOUS)
        .bind(&table)
        .fetch_optional(connection)
        .await?;
    copies.extend(previous.map(|at| EarlierRows { table, position: at.max(0).cast_unsigned() }));
    Ok(copies)
}

/// Compares earlier rows of a projection with the log as it is now.
///
/// # Errors
/// [`RebuildError`].
pub fn verify_copy<'a>(
    source: impl Into<Source>,
    name: &'a str,
    copy: &'a EarlierRows,
    progress: impl FnMut(Progress) + Send + 'a,
) -> BoxFuture<'a, Result<Verified, RebuildError>> {
    verify_rows(source.into(), name, Some(copy), progress)
}

fn verify_rows<'a>(
    source: Source,
    name: &'a str,
    copy: Option<&'a EarlierRows>,
    mut progress: impl FnMut(Progress) + Send + 'a,
) -> BoxFuture<'a, Result<Verified, RebuildError>> {
    Box::pin(async move {
        let view = view(name).ok_or_else(|| RebuildError::Unknown(name.into()))?;
        let mut tx = source.pool.begin().await?;
        let snapshot = "set transaction isolation level repeatable read";
        sqlx::Executor::execute(&mut *tx, snapshot).await?;
        // The lock is taken before the snapshot. Otherwise rows of the snapshot could be archived
        // and deleted during the verification.
        block_discard(&mut tx).await?;
        let (stored, table) = match copy {
            Some(copy) => (copy.position, copy.table.clone()),
            None => (live_position(&mut tx, &*view).await?, view.table()),
        };
        let head = head(&mut tx).await?;
        // If the stored position is after the head, only the events up to the head can be compared.
        let position = stored.min(head);
        let (live, expected) = (view.table(), format!("{}_again", view.table()));
        let make =
            format!("create temporary table {expected} (like {live} including all) on commit drop");
        sqlx::Executor::execute(&mut *tx, &*make).await?;
        let mut writer = view.writer();
        let mut at = 0;
        while at < position {
            at = page(&mut tx, &source, (at, position), &*view, (&mut *writer, &expected)).await?;
            progress(Progress::Replaying { events: at, total: position });
        }
        progress(Progress::Comparing);
        let count = format!("select count(*) from {expected}");
        let rows = sqlx::query(&count).fetch_one(&mut *tx).await?.try_get::<i64, _>(0)?;
        let mut differences = compare(&mut tx, &*view, &table, &expected).await?;
        if stored > head {
            let what = format!(
                "the projection is at position {stored}, but the log ends at {head}: the projection would skip the next events; rebuild it"
            );
            differences.insert(0, Difference::Changed { key: "position".into(), what });
        }
        tx.rollback().await?;
        Ok(Verified { rows: u64::try_from(rows).unwrap_or(0), position, differences })
    })
}

async fn compare(
    connection: &mut PgConnection,
    view: &dyn DynProjection,
    live: &str,
    expected: &str,
) -> Result<Vec<Difference>, sqlx::Error> {
    let mut differ = vec!["a.data::text is distinct from b.data::text".to_string()];
    let mut wrong = vec!["null".to_string()];
    for column in view.columns() {
        let test = format!("a.{column} is distinct from b.{column}");
        wrong.push(format!("case when {test} then '{column}' end"));
        differ.push(test);
    }
    let (wrong, differ) = (wrong.join(", "), differ.join(" or "));
    let sql = format!(
        "select coalesce(a.key, b.key) as key, a.data::text as there, b.data::text as rebuilt, \
         concat_ws(', ', {wrong}) as columns \
         from {live} a full join {expected} b on a.key = b.key \
         where {differ} order by 1 limit {MAX_DIFFERENCES}",
    );
    let rows = sqlx::query(&sql).fetch_all(connection).await?;
    rows.iter()
        .map(|row| {
            let key: String = row.try_get("key")?;
            let (stored, expected): (Option<String>, Option<String>) =
                (row.try_get("there")?, row.try_get("rebuilt")?);
            let columns: String = row.try_get("columns")?;
            Ok(match (stored, expected) {
                (None, _) => Difference::Missing { key },
                (Some(_), None) => Difference::Extra { key },
                (Some(stored), Some(expected)) => {
                    Difference::Changed { key, what: explained(&stored, &expected, &columns) }
                }
            })
        })
        .collect()
}

fn explained(stored: &str, expected: &str, columns: &str) -> String {
    if stored == expected {
        return format!("columns that do not match the data of the row: {columns}");
    }
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(Value::Null);
    let mut differences = differences(&parsed(stored), &parsed(expected));
    differences.truncate(5);
    let explain = |one: FieldChange| {
        let FieldChange { path, before, after } = one;
        format!("{path} is {before} and should be {after}")
    };
    match differences.is_empty() {
        true => "the JSON text differs".into(),
        false => differences.into_iter().map(explain).collect::<Vec<_>>().join("; "),
    }
}
