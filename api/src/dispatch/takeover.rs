//! Whose sessions are whose: a server that starts again takes its own, and those of servers that died.
//!
//! Each server says now and then, in a row of `log_consumer`, that it lives. When it has not said so
//! for a whole lease, whichever server notices first takes its sessions over. Nothing hangs on being
//! right: the epoch in each session's row refuses whatever the former owner still says in its name.
use domain::{ids::RunnerId, runner::Runner};
use event_log::EventLog;
use sqlx::{PgPool, Row as _, postgres::PgRow};

use super::Dispatch;
use crate::problem::Problem;

/// The sessions that were this server's are again.
pub(super) async fn own(dispatch: &Dispatch, log: &EventLog, pool: &PgPool) -> Result<(), Problem> {
    let rows = sqlx::query(
        "update runner_session set server_epoch = server_epoch + 1 where server = $1 \
         returning runner, server_epoch",
    )
    .bind(dispatch.server())
    .fetch_all(pool)
    .await?;
    keep(dispatch, log, rows).await
}

/// Say that this server lives, and take over the sessions of those that do not. The times are the
/// database's, so that no two servers' clocks are compared.
///
/// # Errors
/// If the database does not answer.
pub async fn beat(dispatch: &Dispatch, log: &EventLog, pool: &PgPool) -> Result<(), Problem> {
    let lease_ms = i64::try_from(dispatch.timing().lease.as_millis()).unwrap_or(i64::MAX);
    sqlx::query(
        "insert into log_consumer (name, version, shard, position, owner, owner_epoch, lease_until) \
         values ('server/' || $1, 1, 0, 0, $1, 0, now() + $2 * interval '1 millisecond') \
         on conflict (name, version, shard) do update set lease_until = excluded.lease_until",
    )
    .bind(dispatch.server())
    .bind(lease_ms)
    .execute(pool)
    .await?;
    let rows = sqlx::query(
        "update runner_session set server = $1, server_epoch = server_epoch + 1 \
         where server <> $1 and not exists (select from log_consumer \
           where name = 'server/' || runner_session.server and lease_until > now()) \
         returning runner, server_epoch",
    )
    .bind(dispatch.server())
    .fetch_all(pool)
    .await?;
    if !rows.is_empty() {
        tracing::warn!("Taking over {} sessions of a server that is gone", rows.len());
    }
    keep(dispatch, log, rows).await
}

/// Watch these runners from now on. Each of their executions gets a full lease and more: nobody could
/// renew it while no server was there.
async fn keep(dispatch: &Dispatch, log: &EventLog, rows: Vec<PgRow>) -> Result<(), Problem> {
    for row in rows {
        let runner: String = row.try_get("runner")?;
        let Ok(id) = runner.parse::<RunnerId>() else { continue };
        let loaded = log.reload::<Runner>(&runner).await?;
        let epoch: i64 = row.try_get("server_epoch")?;
        let heard = dispatch.moment().instant + dispatch.timing().takeover;
        let mut desk = dispatch.desk();
        let known = desk.roster.meet(id, (*loaded.state).clone(), loaded.version, heard);
        known.owned = Some(epoch.cast_unsigned());
        known.heard = known.heard.max(heard);
        desk.board.renew_all(id, heard);
    }
    Ok(())
}
