//! Swap of a shadow table with the live table.
//!
//! The swap locks the tables before the head. An append that waits for the head already holds locks
//! on these tables. The opposite order would therefore end in a deadlock that aborts the append.
//! The lock has a timeout, because a lock request that waits for a long reader stops every append.
use std::time::Duration;

use event_log::LogError;
use sqlx::{PgConnection, PgPool, Row};

use crate::{
    Class,
    catalogue::{LIVE, PREVIOUS, SHADOW},
    rebuild::{AppliedPage, RebuildError, ShadowBuild, live_position},
};

/// Lock timeout in milliseconds of one attempt. Appends queue behind the lock request for at most
/// this time.
const LOCK_MS: u32 = 40;
/// Timeout in milliseconds after which the database ends an idle swap, for example after a lost
/// connection.
const IDLE_MS: u32 = 5_000;
/// Number of attempts before the projection is reported as busy.
const MAX_ATTEMPTS: u32 = 200;
/// Number of events in a page below which the shadow table is close enough to the head for a swap.
/// Appends wait while the swap applies the rest.
const SWAP_DISTANCE: u64 = 200;

/// Makes the shadow table live. Returns the position that the table includes.
pub(crate) async fn swap(pool: &PgPool, build: &mut ShadowBuild) -> Result<u64, RebuildError> {
    for _ in 0..MAX_ATTEMPTS {
        catch_up(pool, build).await?;
        let mut tx = pool.begin().await?;
        match attempt(&mut tx, build).await {
            Ok(Some(position)) => {
                tx.commit().await?;
                return Ok(position);
            }
            Ok(None) => {
                if !build.is_done(&mut tx).await? {
                    return Err(RebuildError::Busy(build.view.name()));
                }
                // Another rebuild finished first, and its table is live.
                return Ok(live_position(&mut tx, &*build.view).await?);
            }
            Err(LogError::Database(error)) if is_locked(&error) => {
                tx.rollback().await?;
                build.forget();
                let jitter = rand::random::<u64>() % 60;
                tokio::time::sleep(Duration::from_millis(20 + jitter)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(RebuildError::Busy(build.view.name()))
}

async fn catch_up(pool: &PgPool, build: &mut ShadowBuild) -> Result<(), LogError> {
    loop {
        let mut tx = pool.begin().await?;
        let Some(AppliedPage { before, at }) = build.page(&mut tx).await? else { return Ok(()) };
        tx.commit().await?;
        if at.saturating_sub(before) < SWAP_DISTANCE {
            return Ok(());
        }
    }
}

async fn attempt(
    connection: &mut PgConnection,
    build: &mut ShadowBuild,
) -> Result<Option<u64>, LogError> {
    #[cfg(feature = "fault-injection")]
    if event_log::fault_injection::has(event_log::fault_injection::Fault::HeadBeforeTables) {
        sqlx::Executor::execute(&mut *connection, "select 1 from log_head for update").await?;
    }
    let lock = format!(
        "set local lock_timeout = '{LOCK_MS}ms'; \
         set local idle_in_transaction_session_timeout = '{IDLE_MS}ms'; \
         lock table {} in access exclusive mode",
        build.live
    );
    sqlx::Executor::execute(&mut *connection, &*lock).await?;
    let Some(position) = apply_rest(connection, build).await? else { return Ok(None) };
    let (live, shadow) = (&build.live, &build.shadow);
    grant(connection, live, shadow).await?;
    let previous = format!("{live}_previous");
    let rename = format!(
        "drop table if exists {previous}; alter table {live} rename to {previous}; \
         alter table {shadow} rename to {live}"
    );
    sqlx::Executor::execute(&mut *connection, &*rename).await?;
    set_position(connection, build, position).await?;
    if build.view.class() == Class::Synchronous {
        // An append prepared with the old rows finds that the fencing counter changed, and reads
        // the rows again.
        sqlx::Executor::execute(&mut *connection, "update log_head set fence = fence + 1").await?;
    }
    Ok(Some(position))
}

/// Applies the remaining events to the shadow table while the live table is locked. Returns the
/// position reached.
async fn apply_rest(
    connection: &mut PgConnection,
    build: &mut ShadowBuild,
) -> Result<Option<u64>, LogError> {
    match build.view.class() {
        // The rows must match the head, which is locked, so no event can follow.
        Class::Synchronous => {
            sqlx::Executor::execute(&mut *connection, "select position from log_head for update")
                .await?;
            loop {
                match build.page(connection).await? {
                    None => return Ok(None),
                    Some(AppliedPage { before, at }) if at == before => return Ok(Some(at)),
                    Some(_) => {}
                }
            }
        }
        // The shadow table needs to include at least the position of the live table. Appends
        // continue, so waiting for the head could block every reader for a long time. The projector
        // applies the rest.
        Class::Asynchronous => {
            let live =
                "select position from log_consumer where name = $1 and shard = $2 for update";
            let live = sqlx::query_scalar(live).bind(build.view.name()).bind(LIVE);
            let live: Vec<i64> = live.fetch_all(&mut *connection).await?;
            let live = live.into_iter().max().map_or(0, i64::cast_unsigned);
            loop {
                match build.page(connection).await? {
                    None => return Ok(None),
                    Some(AppliedPage { at, .. }) if at >= live => return Ok(Some(at)),
                    Some(_) => {}
                }
            }
        }
    }
}

/// Sets the projection's position to that of its shadow table.
///
/// The consumer row is updated, not replaced, because a projector that waits for the lock of the
/// row must find the row. The owner epoch changes, because the projector cached rows of the old
/// table.
async fn set_position(
    connection: &mut PgConnection,
    build: &ShadowBuild,
    position: u64,
) -> Result<(), sqlx::Error> {
    let view = &*build.view;
    let position = i64::try_from(position).unwrap_or(i64::MAX);
    sqlx::query("delete from log_consumer where name = $1 and (shard >= $2 or shard = $3)")
        .bind(view.name())
        .bind(SHADOW)
        .bind(PREVIOUS)
        .execute(&mut *connection)
        .await?;
    // Position of the previous rows, from which a rollback continues. Inline projections always
    // match the head.
    let previous_position = (view.class() == Class::Synchronous).then_some(position);
    sqlx::query(
        "insert into log_consumer (name, version, shard, position, owner, owner_epoch) \
         select name, version, $3, coalesce($4, position), $5, 0 from log_consumer \
         where name = $1 and shard = $2 order by version desc limit 1",
    )
    .bind(view.name())
    .bind(LIVE)
    .bind(PREVIOUS)
    .bind(previous_position)
    // A rebuild that finds no shadow table compares this value with its own purpose, to detect that
    // another process has done the same work.
    .bind(build.aim)
    .execute(&mut *connection)
    .await?;
    let updated = sqlx::query(
        "update log_consumer set version = $2, position = $3, owner_epoch = owner_epoch + 1 \
         where name = $1 and shard = $4",
    )
    .bind(view.name())
    .bind(view.version())
    .bind(position)
    .bind(LIVE)
    .execute(&mut *connection)
    .await?;
    if updated.rows_affected() == 0 {
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

/// Copies the privileges of the live table to the shadow table, which initially only its owner may
/// use.
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
