//! The rows of a view as of a position in a table of their own, beside the one in use, until somebody drops it. It is
//! there whole or not at all, nothing reads it but people, and it never becomes the view.
use event_log::Source;
use sqlx::{PgConnection, PgPool, Row};

use crate::{
    as_of::Past,
    catalogue::view,
    rebuild::{Progress, RebuildError},
};

/// A table that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// What it is called.
    pub table: String,
    /// The last position that its rows include.
    pub position: u64,
    /// How many there are.
    pub rows: u64,
}

/// What the table of a view's rows as of a position is called.
pub(crate) fn table(live: &str, position: u64) -> String {
    format!("{live}_at_{position}")
}

/// Make it.
///
/// # Errors
/// [`RebuildError`]; then there is no such table.
pub async fn keep(
    source: impl Into<Source>,
    name: &str,
    position: u64,
    mut progress: impl FnMut(Progress) + Send,
) -> Result<Kept, RebuildError> {
    let mut past = Past::kept(source, name, position).await?;
    while let Some(folded) = past.fold().await? {
        progress(Progress::Replaying { events: folded.events, total: folded.total });
    }
    past.commit().await
}

/// The positions as of which there is a table of a view's rows.
///
/// # Errors
/// If the database does not answer.
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

/// Drop it: whether it was there.
///
/// # Errors
/// [`RebuildError`].
pub async fn discard(pool: &PgPool, name: &str, position: u64) -> Result<bool, RebuildError> {
    let view = view(name).ok_or_else(|| RebuildError::Unknown(name.into()))?;
    let mut tx = pool.begin().await?;
    let there = positions(&mut tx, name).await?.contains(&position);
    if there {
        // Whoever reads it must not keep this call for ever.
        let sql = format!(
            "set local lock_timeout = '2s'; drop table if exists {}",
            table(&view.table(), position)
        );
        let dropped = sqlx::Executor::execute(&mut *tx, &*sql).await;
        dropped.map_err(|error| match error.as_database_error().and_then(|said| said.code()) {
            Some(code) if code == "55P03" => RebuildError::Busy(view.name()),
            Some(_) | None => error.into(),
        })?;
    }
    tx.commit().await?;
    Ok(there)
}

/// Two asked for the same, or it was kept before.
pub(crate) fn is_there(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    // The type of its rows, where another makes it at this moment.
    code.is_some_and(|code| matches!(&*code, "42P07" | "23505" | "42710"))
}
