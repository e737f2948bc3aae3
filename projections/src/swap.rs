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
    catalogue::{LIVE, PREVIOUS, SHADOW},
    rebuild::{Making, RebuildError, Taken, live_position},
};

/// How long appends may be held up by one try.
const LOCK_MS: u32 = 40;
/// How long the database holds them up for somebody whom it does not hear any more.
const SILENCE_MS: u32 = 5_000;
/// How often it is tried before the view is said to be busy.
const TRIES: u32 = 200;
/// How far the shadow may be behind when it is tried: what is left is folded while appends wait.
const NEAR: u64 = 200;

/// Put the shadow into use: the position that it includes.
pub(crate) async fn swap(pool: &PgPool, making: &mut Making) -> Result<u64, RebuildError> {
    for _ in 0..TRIES {
        catch_up(pool, making).await?;
        let mut tx = pool.begin().await?;
        match once(&mut tx, making).await {
            Ok(Some(position)) => {
                tx.commit().await?;
                return Ok(position);
            }
            Ok(None) => {
                if !making.is_done(&mut tx).await? {
                    return Err(RebuildError::Busy(making.view.name()));
                }
                // Another rebuild was faster: its tables are ours.
                return Ok(live_position(&mut tx, &*making.view).await?);
            }
            Err(LogError::Database(error)) if is_locked(&error) => {
                tx.rollback().await?;
                making.forget();
                let jitter = rand::random::<u64>() % 60;
                tokio::time::sleep(Duration::from_millis(20 + jitter)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(RebuildError::Busy(making.view.name()))
}

async fn catch_up(pool: &PgPool, making: &mut Making) -> Result<(), LogError> {
    loop {
        let mut tx = pool.begin().await?;
        let Some(Taken { before, at }) = making.page(&mut tx).await? else { return Ok(()) };
        tx.commit().await?;
        if at.saturating_sub(before) < NEAR {
            return Ok(());
        }
    }
}

async fn once(connection: &mut PgConnection, making: &mut Making) -> Result<Option<u64>, LogError> {
    #[cfg(feature = "planted")]
    if event_log::planted::has(event_log::planted::Bug::HeadBeforeTables) {
        sqlx::Executor::execute(&mut *connection, "select 1 from log_head for update").await?;
    }
    let lock = format!(
        "set local lock_timeout = '{LOCK_MS}ms'; \
         set local idle_in_transaction_session_timeout = '{SILENCE_MS}ms'; \
         lock table {} in access exclusive mode",
        making.live
    );
    sqlx::Executor::execute(&mut *connection, &*lock).await?;
    let Some(position) = come_up(connection, making).await? else { return Ok(None) };
    let (live, shadow) = (&making.live, &making.shadow);
    grant(connection, live, shadow).await?;
    let previous = format!("{live}_previous");
    let rename = format!(
        "drop table if exists {previous}; alter table {live} rename to {previous}; \
         alter table {shadow} rename to {live}"
    );
    sqlx::Executor::execute(&mut *connection, &*rename).await?;
    arrive(connection, making, position).await?;
    if making.view.class() == Class::Synchronous {
        // Whoever prepared an append on the old rows finds the turn moved, and reads them again.
        sqlx::Executor::execute(&mut *connection, "update log_head set fence = fence + 1").await?;
    }
    Ok(Some(position))
}

/// Take what the shadow still lacks, with the view locked: where it is then.
async fn come_up(
    connection: &mut PgConnection,
    making: &mut Making,
) -> Result<Option<u64>, LogError> {
    match making.view.class() {
        // Exact with the head, which is locked: nothing comes any more.
        Class::Synchronous => {
            sqlx::Executor::execute(&mut *connection, "select position from log_head for update")
                .await?;
            loop {
                match making.page(connection).await? {
                    None => return Ok(None),
                    Some(Taken { before, at }) if at == before => return Ok(Some(at)),
                    Some(_) => {}
                }
            }
        }
        // No further behind than the rows that are read. Appends go on all the while: who waited for a moment
        // without one would keep every reader out until then. The projector goes on from here.
        Class::Asynchronous => {
            let live =
                "select position from log_consumer where name = $1 and shard = $2 for update";
            let live = sqlx::query_scalar(live).bind(making.view.name()).bind(LIVE);
            let live: Vec<i64> = live.fetch_all(&mut *connection).await?;
            let live = live.into_iter().max().map_or(0, i64::cast_unsigned);
            loop {
                match making.page(connection).await? {
                    None => return Ok(None),
                    Some(Taken { at, .. }) if at >= live => return Ok(Some(at)),
                    Some(_) => {}
                }
            }
        }
    }
}

/// The view is where its shadow was. The row is changed, not replaced: a projector that waits for it must find
/// it; and it has a new owner's epoch, because the rows that the projector remembers are of the old table.
async fn arrive(
    connection: &mut PgConnection,
    making: &Making,
    position: u64,
) -> Result<(), sqlx::Error> {
    let view = &*making.view;
    let position = i64::try_from(position).unwrap_or(i64::MAX);
    sqlx::query("delete from log_consumer where name = $1 and (shard >= $2 or shard = $3)")
        .bind(view.name())
        .bind(SHADOW)
        .bind(PREVIOUS)
        .execute(&mut *connection)
        .await?;
    // Where the rows that are kept stopped: a rollback goes on from there. Synchronous ones are exact with the head.
    let exact = (view.class() == Class::Synchronous).then_some(position);
    sqlx::query(
        "insert into log_consumer (name, version, shard, position, owner, owner_epoch) \
         select name, version, $3, coalesce($4, position), $5, 0 from log_consumer \
         where name = $1 and shard = $2 order by version desc limit 1",
    )
    .bind(view.name())
    .bind(LIVE)
    .bind(PREVIOUS)
    .bind(exact)
    // Who finds no shadow learns from it whether this is what he wanted, too.
    .bind(making.aim)
    .execute(&mut *connection)
    .await?;
    let moved = sqlx::query(
        "update log_consumer set version = $2, position = $3, owner_epoch = owner_epoch + 1 \
         where name = $1 and shard = $4",
    )
    .bind(view.name())
    .bind(view.version())
    .bind(position)
    .bind(LIVE)
    .execute(&mut *connection)
    .await?;
    if moved.rows_affected() == 0 {
        sqlx::query(
            "insert into log_consumer (name, version, shard, position, owner_epoch) \
             values ($1, $2, $4, $3, 0)",
        )
        .bind(view.name())
        .bind(view.version())
        .bind(position)
        .bind(LIVE)
        .execute(connection)
        .await?;
    }
    Ok(())
}

/// A new table belongs to whoever made it, and to nobody else: all who may use the old one may use the new one.
pub(crate) async fn grant(
    connection: &mut PgConnection,
    live: &str,
    shadow: &str,
) -> Result<(), sqlx::Error> {
    let grants = sqlx::query(
        "select format('grant %s on %s to %s%s', a.privilege_type, $2::regclass, \
           case when a.grantee = 0 then 'public' else a.grantee::regrole::text end, \
           case when a.is_grantable then ' with grant option' else '' end) \
         from pg_class c, aclexplode(c.relacl) a \
         where c.oid = $1::regclass and a.grantee <> c.relowner",
    );
    let grants = grants.bind(live).bind(shadow).fetch_all(&mut *connection).await?;
    let grants: Vec<String> = grants.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    sqlx::Executor::execute(connection, &*grants.join("; ")).await?;
    Ok(())
}

pub(crate) fn is_locked(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| matches!(&*code, "55P03" | "40P01" | "40001"))
}
