//! Permanent tables with the rows of a projection as of a position. A table becomes visible only
//! when it is complete. It remains until a user or an erasure drops it, and it never becomes the
//! live table.
use event_log::Source;
use sqlx::{PgConnection, PgPool, Row};

use crate::{
    as_of::AsOfQuery,
    catalogue::view,
    rebuild::{Progress, RebuildError},
};

/// Name, position and row count of a table with rows as of a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsOfTable {
    pub table: String,
    /// Last position that the rows include.
    pub position: u64,
    pub rows: u64,
}

/// Name of the table with the rows of a projection as of a position.
pub(crate) fn table(live: &str, position: u64) -> String {
    format!("{live}_at_{position}")
}

/// Creates a table with the rows of a projection as of a position.
///
/// # Errors
/// [`RebuildError`]. The call then leaves no new table.
pub async fn create(
    source: impl Into<Source>,
    name: &str,
    position: u64,
    mut progress: impl FnMut(Progress) + Send,
) -> Result<AsOfTable, RebuildError> {
    let mut query = AsOfQuery::into_table(source, name, position).await?;
    while let Some(folded) = query.fold().await? {
        progress(Progress::Replaying { events: folded.events, total: folded.total });
    }
    query.commit().await
}

/// Returns the positions for which a projection has a table with earlier rows.
///
/// # Errors
/// If a database operation fails.
pub async fn positions(connection: &mut PgConnection, name: &str) -> Result<Vec<u64>, sqlx::Error> {
    let Some(view) = view(name) else { return Ok(vec![]) };
    let prefix = format!("{}_at_", view.table());
    let sql = "select substr(relname, length($1) + 1) from pg_class \
               where relkind = 'r' and starts_with(relname, $1) and pg_table_is_visible(oid)";
    let rows = sqlx::query(sql).bind(prefix).fetch_all(connection).await?;
    let rest: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let mut positions: Vec<u64> = rest.iter().filter_map(|rest| rest.parse().ok()).collect();
    positions.sort_unstable();
    Ok(positions)
}

/// Drops the table of a projection as of a position. Returns false if it did not exist.
///
/// # Errors
/// [`RebuildError`].
pub async fn discard(pool: &PgPool, name: &str, position: u64) -> Result<bool, RebuildError> {
    let view = view(name).ok_or_else(|| RebuildError::Unknown(name.into()))?;
    let mut tx = pool.begin().await?;
    let existed = positions(&mut tx, name).await?.contains(&position);
    if existed {
        // A long reader of the table must not block this call indefinitely.
        let sql = format!(
            "set local lock_timeout = '2s'; drop table if exists {}",
            table(&view.table(), position)
        );
        let dropped = sqlx::Executor::execute(&mut *tx, &*sql).await;
        dropped.map_err(|error| {
            match error.as_database_error().and_then(|database| database.code()) {
                Some(code) if code == "55P03" => RebuildError::Busy(view.name()),
                Some(_) | None => error.into(),
            }
        })?;
    }
    tx.commit().await?;
    Ok(existed)
}

/// Returns true if the error means that the table exists already, or that another caller creates it
/// concurrently.
pub(crate) fn is_existing_table(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    // A concurrent creation fails on the table's row type, with one of the last two codes.
    code.is_some_and(|code| matches!(&*code, "42P07" | "23505" | "42710"))
}
