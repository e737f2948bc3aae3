//! The moment a shadow becomes the view.
//!
//! Tables before head: an append that waits for the head already holds its locks on these tables, so taking the
//! head first ends in a deadlock that kills the append. And with a time limit: a lock that waits behind a long
//! reader stalls every append behind it.
use std::time::Duration;

use event_log::LogError;
use sqlx::{PgConnection, PgPool, Row};

use crate::{
    Class,
    catalogue::{LIVE, SHADOW},
    fold::{Folding, View},
    rebuild::{RebuildError, Rebuilt, Shadow},
};

/// How long appends may be held up by one try.
const LOCK_MS: u32 = 40;
/// How often it is tried before the view is said to be busy.
const TRIES: u32 = 200;
/// How far the shadow may be behind when it is tried: what is left is folded while appends wait.
const NEAR: u64 = 200;

pub(crate) async fn swap(
    pool: &PgPool,
    view: &dyn View,
    shadow: &Shadow,
    folding: &mut dyn Folding,
) -> Result<Rebuilt, RebuildError> {
    for _ in 0..TRIES {
        catch_up(pool, view, shadow, folding).await?;
        let mut tx = pool.begin().await?;
        match once(&mut tx, view, shadow, folding).await {
            Ok(rebuilt) => {
                tx.commit().await?;
                return Ok(rebuilt);
            }
            Err(LogError::Database(error)) if is_locked(&error) => {
                tx.rollback().await?;
                // What was folded in this try was rolled back.
                folding.forget();
                let jitter = rand::random::<u64>() % 60;
                tokio::time::sleep(Duration::from_millis(20 + jitter)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(RebuildError::Busy)
}

async fn catch_up(
    pool: &PgPool,
    view: &dyn View,
    shadow: &Shadow,
    folding: &mut dyn Folding,
) -> Result<(), LogError> {
    loop {
        let mut tx = pool.begin().await?;
        let (before, at) = shadow.page(&mut tx, view, folding).await?;
        tx.commit().await?;
        if at.saturating_sub(before) < NEAR {
            return Ok(());
        }
    }
}

async fn once(
    connection: &mut PgConnection,
    view: &dyn View,
    shadow: &Shadow,
    folding: &mut dyn Folding,
) -> Result<Rebuilt, LogError> {
    let (live, table) = (&shadow.live, &shadow.table);
    let lock = format!(
        "set local lock_timeout = '{LOCK_MS}ms'; lock table {live} in access exclusive mode"
    );
    sqlx::Executor::execute(&mut *connection, &*lock).await?;
    match view.class() {
        Class::Synchronous => {
            sqlx::Executor::execute(&mut *connection, "select position from log_head for update")
                .await?;
        }
        Class::Asynchronous => {
            sqlx::query("select 1 from log_consumer where name = $1 and shard = $2 for update")
                .bind(shadow.name)
                .bind(LIVE)
                .execute(&mut *connection)
                .await?;
        }
    }
    let position = loop {
        let (before, at) = shadow.page(connection, view, folding).await?;
        if at == before {
            break at;
        }
    };
    let count = format!("select count(*) from {table}");
    let rows = sqlx::query(&count).fetch_one(&mut *connection).await?.try_get::<i64, _>(0)?;
    let previous = format!("{live}_previous");
    let rename = format!(
        "drop table if exists {previous}; alter table {live} rename to {previous}; \
         alter table {table} rename to {}",
        live
    );
    sqlx::Executor::execute(&mut *connection, &*rename).await?;
    grant(connection, live).await?;
    arrive(connection, shadow, position).await?;
    if view.class() == Class::Synchronous {
        // Whoever prepared an append on the old rows finds the turn moved, and reads them again.
        sqlx::Executor::execute(&mut *connection, "update log_head set turn = turn + 1").await?;
    }
    Ok(Rebuilt { rows: u64::try_from(rows).unwrap_or(0), position })
}

/// The view is where its shadow was. The row is changed, not replaced: a projector that waits for it must find it.
async fn arrive(
    connection: &mut PgConnection,
    shadow: &Shadow,
    position: u64,
) -> Result<(), sqlx::Error> {
    let position = i64::try_from(position).unwrap_or(i64::MAX);
    sqlx::query("delete from log_consumer where name = $1 and shard = $2")
        .bind(shadow.name)
        .bind(SHADOW)
        .execute(&mut *connection)
        .await?;
    let moved = sqlx::query(
        "update log_consumer set version = $2, position = $3 where name = $1 and shard = $4",
    )
    .bind(shadow.name)
    .bind(shadow.version)
    .bind(position)
    .bind(LIVE)
    .execute(&mut *connection)
    .await?;
    if moved.rows_affected() == 0 {
        sqlx::query(
            "insert into log_consumer (name, version, shard, position, owner_epoch) \
             values ($1, $2, $4, $3, 0)",
        )
        .bind(shadow.name)
        .bind(shadow.version)
        .bind(position)
        .bind(LIVE)
        .execute(connection)
        .await?;
    }
    Ok(())
}

/// A new table belongs to whoever made it; the application's role must be able to write it.
async fn grant(connection: &mut PgConnection, table: &str) -> Result<(), sqlx::Error> {
    let role = sqlx::query("select 1 from pg_roles where rolname = 'stead_app'");
    if role.fetch_optional(&mut *connection).await?.is_some() {
        let sql = format!("grant select, insert, update, delete on {table} to stead_app");
        sqlx::Executor::execute(&mut *connection, &*sql).await?;
    }
    Ok(())
}

fn is_locked(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| matches!(&*code, "55P03" | "40P01" | "40001"))
}
