//! Ownership of sessions. A server that starts resumes its own sessions and takes over the sessions
//! of stopped servers.
//!
//! Each server renews a heartbeat row in `log_consumer`. If a server misses a full lease, the first
//! server that detects this takes over its sessions. A wrong decision is harmless, because the
//! epoch in each session's row rejects commits of the former owner.
use std::sync::atomic::{AtomicBool, Ordering};

use domain::{ids::RunnerId, runner::Runner};
use event_log::EventLog;
use futures::{StreamExt as _, stream};
use sqlx::PgPool;

use super::Dispatch;
use crate::problem::{Code, Problem};

/// Number of sessions to take over concurrently.
const MAX_CONCURRENT: usize = 16;

/// SQL condition of an abandoned session: it belongs to no live server, by the database's clock.
const IS_ABANDONED_SQL: &str = "server <> $1 and not exists (select from log_consumer \
     where name = 'server/' || runner_session.server and lease_until > now())";

/// Resumes the sessions of this server. A session that cannot be watched yet is retried with each
/// [`beat`].
pub(super) async fn resume_own(
    dispatch: &Dispatch,
    log: &EventLog,
    pool: &PgPool,
) -> Result<(), Problem> {
    let runners: Vec<String> = sqlx::query_scalar(
        "update runner_session set server_epoch = server_epoch + 1 where server = $1 returning runner",
    )
    .bind(dispatch.server())
    .fetch_all(pool)
    .await?;
    take_over(dispatch, log, pool, parsed(runners)).await;
    Ok(())
}

/// Writes this server's heartbeat, and takes over the sessions of servers without a heartbeat. All
/// times come from the database, so server clocks are not compared.
///
/// # Errors
///
/// The database is unavailable.
pub(crate) async fn beat(
    dispatch: &Dispatch,
    log: &EventLog,
    pool: &PgPool,
) -> Result<(), Problem> {
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
    let abandoned = format!("select runner from runner_session where {IS_ABANDONED_SQL}");
    let runners: Vec<String> =
        sqlx::query_scalar(&abandoned).bind(dispatch.server()).fetch_all(pool).await?;
    if !runners.is_empty() {
        tracing::warn!(sessions = runners.len(), "Taking over sessions of stopped servers");
    }
    let mut runners = parsed(runners);
    runners.extend(dispatch.unwatched());
    take_over(dispatch, log, pool, runners).await;
    Ok(())
}

/// Deletes the rows of servers without a heartbeat for an hour and without a session. A server
/// that returns writes its row again. Returns the number of deleted rows.
///
/// # Errors
/// The database is unavailable.
pub(crate) async fn forget_gone(pool: &PgPool) -> Result<u64, sqlx::Error> {
    let sql = "delete from log_consumer c where starts_with(c.name, 'server/') \
                and c.lease_until < now() - interval '1 hour' \
                and not exists (select from runner_session s where c.name = 'server/' || s.server)";
    Ok(sqlx::query(sql).execute(pool).await?.rows_affected())
}

fn parsed(runners: Vec<String>) -> Vec<RunnerId> {
    runners.iter().filter_map(|runner| runner.parse().ok()).collect()
}

/// Takes over each session separately. A failed takeover is retried with the next heartbeat. If the
/// database is unavailable, the remaining sessions also wait for the next heartbeat.
async fn take_over(dispatch: &Dispatch, log: &EventLog, pool: &PgPool, runners: Vec<RunnerId>) {
    // From here on the database may name this server as the owner, even if a later step fails.
    dispatch.set_unwatched(&runners, true);
    let is_unavailable = &AtomicBool::new(false);
    let each = stream::iter(runners).for_each_concurrent(MAX_CONCURRENT, |runner| async move {
        if is_unavailable.load(Ordering::Relaxed) {
            return;
        }
        match take_over_one(dispatch, log, pool, runner).await {
            Ok(()) => dispatch.set_unwatched(&[runner], false),
            Err(problem) => {
                is_unavailable.fetch_or(problem.code == Code::Unavailable, Ordering::Relaxed);
                tracing::warn!(runner.id = %runner, error = %problem.detail, "Cannot take over a session yet");
            }
        }
    });
    each.await;
}

/// Watches this runner if its session belongs to this server or to no live server. The runner's
/// executions get more than a full lease, because the runner could not renew leases without a
/// server.
async fn take_over_one(
    dispatch: &Dispatch,
    log: &EventLog,
    pool: &PgPool,
    id: RunnerId,
) -> Result<(), Problem> {
    // Operations that can fail come before the update that makes this server the owner.
    let loaded = log.reload::<Runner>(&id.to_string()).await?;
    let take = format!(
        "update runner_session set server = $1, server_epoch = server_epoch + (server <> $1)::int \
         where runner = $2 and (server = $1 or {IS_ABANDONED_SQL}) returning server_epoch"
    );
    let owned = sqlx::query_scalar(&take).bind(dispatch.server()).bind(id.to_string());
    let epoch: Option<i64> = owned.fetch_optional(pool).await?;
    let Some(epoch) = epoch else { return Ok(()) };
    let contact = dispatch.moment().instant + dispatch.timing().takeover;
    let mut state = dispatch.state();
    let entry = state.runners.meet(id, (*loaded.state).clone(), loaded.version, contact);
    // The runner may meanwhile have opened a newer session on this server.
    entry.epoch = entry.epoch.max(Some(epoch.cast_unsigned()));
    entry.effective_contact = entry.effective_contact.max(contact);
    state.jobs.renew_all(id, contact);
    Ok(())
}

impl Dispatch {
    /// Gives the executions of runners whose sessions this server owns more than a full lease,
    /// because this server could not accept their calls.
    pub(crate) fn renew_owned(&self) {
        let contact = self.moment().instant + self.timing().takeover;
        let mut state = self.state();
        let mut owned = vec![];
        for (id, entry) in state.runners.all_mut().filter(|(_, entry)| entry.epoch.is_some()) {
            entry.effective_contact = entry.effective_contact.max(contact);
            owned.push(id);
        }
        for id in owned {
            state.jobs.renew_all(id, contact);
        }
    }

    fn unwatched(&self) -> Vec<RunnerId> {
        self.state().unwatched.iter().copied().collect()
    }

    fn set_unwatched(&self, runners: &[RunnerId], unwatched: bool) {
        let mut state = self.state();
        for runner in runners {
            if unwatched {
                state.unwatched.insert(*runner);
            } else {
                state.unwatched.remove(runner);
            }
        }
    }
}
