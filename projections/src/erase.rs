//! Rows that say what may no longer be read: all views are made again from the log, which says it no more, and every
//! table that has rows of before is dropped.
use event_log::Source;
use sqlx::{PgConnection, PgPool};

use crate::{
    catalogue::{PREVIOUS, SHADOW, views},
    kept,
    rebuild::{RebuildError, rebuild_all, remake},
    swap::is_locked,
};

/// How long readers may be held up by one of the tables that are dropped.
const LOCK: &str = "set local lock_timeout = '2s'";

/// Make every view again and keep nothing of before. It may be killed, and called again.
///
/// # Errors
/// [`RebuildError`]; then there may be rows of before.
pub async fn erase(source: impl Into<Source>) -> Result<(), RebuildError> {
    let source = source.into();
    no_shadows(&source.pool).await?;
    rebuild_all(&source, &names(), 1, |_| {}).await?;
    no_earlier_rows(&source.pool).await
}

/// Make the rows of some streams (kind and id) again in every view and keep nothing of before: where the log cannot be read
/// from its start. It may be killed, and called again.
///
/// # Errors
/// [`RebuildError`]; then there may be rows of before.
pub async fn erase_streams(
    source: impl Into<Source>,
    streams: &[(String, String)],
) -> Result<(), RebuildError> {
    let source = source.into();
    no_shadows(&source.pool).await?;
    for view in views() {
        let known = view.aggregates();
        if streams.iter().any(|(kind, _)| known.iter().any(|known| known == kind)) {
            remake(&source, view, streams).await?;
        }
    }
    no_earlier_rows(&source.pool).await
}

/// A shadow that somebody has begun has rows of before, and would be gone on with.
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
        for position in kept::positions(&mut tx, name).await? {
            dropped(&mut tx, name, &kept::table(&live, position)).await?;
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

/// What the deleted rows of these tables still are on the disk goes with them, as far as the database can.
///
/// # Errors
/// If the database does not answer.
pub async fn vacuum(owner: &PgPool, tables: &str) -> Result<(), sqlx::Error> {
    let sql = format!("vacuum {tables}");
    sqlx::Executor::execute(owner, &*sql).await.map(drop)
}
