//! Erases the personal data of a shredded subject from the projections. A rebuild from the log
//! replaces the rows, because the data in the log can no longer be decrypted. Then the erasure
//! drops every table with earlier rows.
use event_log::Source;
use sqlx::{PgConnection, PgPool};

use crate::{
    as_of_table,
    catalogue::{PREVIOUS, SHADOW, views},
    rebuild::{RebuildError, rebuild_all, rebuild_streams},
    swap::is_locked,
};

/// Lock timeout of a drop. Readers of the table queue behind the lock request for at most this
/// time.
const LOCK: &str = "set local lock_timeout = '2s'";

/// Rebuilds every projection and drops all earlier rows. The call can be repeated after a crash.
///
/// # Errors
/// [`RebuildError`]. Earlier rows may remain then.
pub async fn erase(source: impl Into<Source>) -> Result<(), RebuildError> {
    let source = source.into();
    no_shadows(&source.pool).await?;
    rebuild_all(&source, &names(), 1, |_| {}).await?;
    no_earlier_rows(&source.pool).await
}

/// Rebuilds the rows of some streams (aggregate type and id) in every projection and drops all
/// earlier rows. Does not read other streams of the log, which may be unreadable. The call can be
/// repeated after a crash.
///
/// # Errors
/// [`RebuildError`]. Earlier rows may remain then.
pub async fn erase_streams(
    source: impl Into<Source>,
    streams: &[(String, String)],
) -> Result<(), RebuildError> {
    let source = source.into();
    no_shadows(&source.pool).await?;
    for view in views() {
        let known = view.aggregates();
        if streams.iter().any(|(kind, _)| known.iter().any(|known| known == kind)) {
            rebuild_streams(&source, view, streams).await?;
        }
    }
    no_earlier_rows(&source.pool).await
}

/// Discards unfinished rebuilds. Their shadow tables contain earlier rows, and the next rebuild
/// would continue with these tables.
async fn no_shadows(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query("delete from log_consumer where shard >= $1 and name = any($2)")
        .bind(SHADOW)
        .bind(names())
        .execute(pool)
        .await?;
    Ok(())
}

async fn no_earlier_rows(pool: &PgPool) -> Result<(), RebuildError> {
    for view in views() {
        let (name, live) = (view.name(), view.table());
        let mut tx = pool.begin().await?;
        for position in as_of_table::positions(&mut tx, name).await? {
            dropped(&mut tx, name, &as_of_table::table(&live, position)).await?;
        }
        dropped(&mut tx, name, &format!("{live}_previous")).await?;
        sqlx::query("delete from log_consumer where name = $1 and shard = $2")
            .bind(name)
            .bind(PREVIOUS)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
    }
    Ok(())
}

fn names() -> Vec<&'static str> {
    views().iter().map(|view| view.name()).collect()
}

async fn dropped(
    connection: &mut PgConnection,
    name: &'static str,
    table: &str,
) -> Result<(), RebuildError> {
    let sql = format!("{LOCK}; drop table if exists {table}");
    let done = sqlx::Executor::execute(connection, &*sql).await;
    done.map(drop).map_err(|error| match is_locked(&error) {
        true => RebuildError::Busy(name),
        false => error.into(),
    })
}

/// Vacuums tables, so that the database can overwrite deleted rows on disk. `tables` is a
/// comma-separated list.
///
/// # Errors
/// If a database operation fails.
pub async fn vacuum(owner: &PgPool, tables: &str) -> Result<(), sqlx::Error> {
    let sql = format!("vacuum {tables}");
    sqlx::Executor::execute(owner, &*sql).await.map(drop)
}
