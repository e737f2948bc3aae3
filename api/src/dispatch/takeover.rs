//! Whose sessions are whose: a server that starts again takes its own, and those of servers that died.
//!
//! Each server says now and then, in a row of `log_consumer`, that it lives. When it has not said so
//! for a whole lease, whichever server notices first takes its sessions over. Nothing hangs on being
//! right: the epoch in each session's row refuses whatever the former owner still says in its name.
use std::sync::atomic::{AtomicBool, Ordering};

use domain::{ids::RunnerId, runner::Runner};
use event_log::EventLog;
use futures::{StreamExt as _, stream};
use sqlx::PgPool;

use super::Dispatch;
use crate::problem::{Code, Problem};

/// Number of sessions that are taken over concurrently.
const AT_ONCE: usize = 16;

/// Condition: the session belongs to no live server, by the database's clock.
const ABANDONED: &str = "server <> $1 and not exists (select from log_consumer \
     where name = 'server/' || runner_session.server and lease_until > now())";

/// Resumes the sessions of this server. A session that cannot be watched yet is retried with each [`beat`].
pub(super) async fn own(dispatch: &Dispatch, log: &EventLog, pool: &PgPool) -> Result<(), Problem> {
    let runners: Vec<String> = sqlx::query_scalar(
        "update runner_session set server_epoch = server_epoch + 1 where server = $1 returning runner",
    )
    .bind(dispatch.server())
    .fetch_all(pool)
    .await?;
    take_over(dispatch, log, pool, parsed(runners)).await;
    Ok(())
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
    let abandoned = format!("select runner from runner_session where {ABANDONED}");
    let runners: Vec<String> =
        sqlx::query_scalar(&abandoned).bind(dispatch.server()).fetch_all(pool).await?;
    if !runners.is_empty() {
        tracing::warn!(
            sessions = runners.len(),
            "Taking over the sessions of a server that is gone"
        );
    }
    let mut runners = parsed(runners);
    runners.extend(dispatch.unwatched());
    take_over(dispatch, log, pool, runners).await;
    Ok(())
}

/// Removes the rows of servers that no longer exist: silent for an hour, and without a session. One that comes back
/// writes its row again. Returns how many there were.
///
/// # Errors
/// The database does not answer.
pub async fn forget_gone(pool: &PgPool) -> Result<u64, sqlx::Error> {
    let gone = "delete from log_consumer c where starts_with(c.name, 'server/') \
                and c.lease_until < now() - interval '1 hour' \
                and not exists (select from runner_session s where c.name = 'server/' || s.server)";
    Ok(sqlx::query(gone).execute(pool).await?.rows_affected())
}

fn parsed(runners: Vec<String>) -> Vec<RunnerId> {
    runners.iter().filter_map(|runner| runner.parse().ok()).collect()
}

/// Take over each session by itself: one that fails is retried with the next beat and holds up no other.
async fn take_over(dispatch: &Dispatch, log: &EventLog, pool: &PgPool, runners: Vec<RunnerId>) {
    // From here on the database may name this server as their owner, even if a later step fails.
    dispatch.set_unwatched(&runners, true);
    let is_away = &AtomicBool::new(false);
    let each = stream::iter(runners).for_each_concurrent(AT_ONCE, |runner| async move {
        if is_away.load(Ordering::Relaxed) {
            return;
        }
        match take_over_one(dispatch, log, pool, runner).await {
            Ok(()) => dispatch.set_unwatched(&[runner], false),
            Err(problem) => {
                is_away.fetch_or(problem.code == Code::Unavailable, Ordering::Relaxed);
                tracing::warn!(runner.id = %runner, error = %problem.detail, "Cannot take over a session yet");
            }
        }
    });
    each.await;
}

/// Watch this runner from now on, if its session belongs to this server or to none. Each of its executions gets a full
/// lease and more: the runner could not renew it while it had no server.
async fn take_over_one(
    dispatch: &Dispatch,
    log: &EventLog,
    pool: &PgPool,
    id: RunnerId,
) -> Result<(), Problem> {
    // What can fail comes before the row says that this server watches it.
    let loaded = log.reload::<Runner>(&id.to_string()).await?;
    let take = format!(
        "update runner_session set server = $1, server_epoch = server_epoch + (server <> $1)::int \
         where runner = $2 and (server = $1 or {ABANDONED}) returning server_epoch"
    );
    let taken = sqlx::query_scalar(&take).bind(dispatch.server()).bind(id.to_string());
    let epoch: Option<i64> = taken.fetch_optional(pool).await?;
    let Some(epoch) = epoch else { return Ok(()) };
    let heard = dispatch.moment().instant + dispatch.timing().takeover;
    let mut desk = dispatch.desk();
    let known = desk.roster.meet(id, (*loaded.state).clone(), loaded.version, heard);
    // The runner may have opened a newer session here meanwhile.
    known.owned = known.owned.max(Some(epoch.cast_unsigned()));
    known.heard = known.heard.max(heard);
    desk.board.renew_all(id, heard);
    Ok(())
}

impl Dispatch {
    /// Gives the runners of this server a full lease and more, because the server could not take their calls.
    pub fn renew_owned(&self) {
        let heard = self.moment().instant + self.timing().takeover;
        let mut desk = self.desk();
        let mut owned = vec![];
        for (id, known) in desk.roster.all_mut().filter(|(_, known)| known.owned.is_some()) {
            known.heard = known.heard.max(heard);
            owned.push(id);
        }
        for id in owned {
            desk.board.renew_all(id, heard);
        }
    }

    fn unwatched(&self) -> Vec<RunnerId> {
        self.desk().unwatched.iter().copied().collect()
    }

    fn set_unwatched(&self, runners: &[RunnerId], unwatched: bool) {
        let mut desk = self.desk();
        for runner in runners {
            if unwatched {
                desk.unwatched.insert(*runner);
            } else {
                desk.unwatched.remove(runner);
            }
        }
    }
}
