//! Publishes signed checkpoints of the log. Also deletes expired idempotency keys and the rows of
//! servers that have stopped.
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{dispatch, problem::Problem, state::App};

/// Intervals and thresholds of the loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Interval between two checks.
    pub tick: Duration,
    /// Number of new positions after which a checkpoint is published.
    pub positions: u64,
    /// Age of the last checkpoint after which a new one is published, if the log has grown at all.
    pub max_age: Duration,
    /// Interval at which expired idempotency keys and the rows of stopped servers are deleted.
    pub sweep: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        let seconds = Duration::from_secs;
        Pace { tick: seconds(1), positions: 1000, max_age: seconds(60), sweep: seconds(600) }
    }
}

/// Publishes checkpoints and deletes expired rows until the server stops.
pub(crate) async fn run(app: App, pace: Pace) {
    let mut ticks = interval(pace.tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut published, mut at) = (0, Instant::now());
    let mut swept: Option<Instant> = None;
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let grown = app.log().position().saturating_sub(published);
        if grown >= pace.positions || (grown > 0 && at.elapsed() >= pace.max_age) {
            match publish(&app).await {
                Ok(position) => (published, at) = (position, Instant::now()),
                Err(problem) => {
                    let detail = &problem.detail;
                    tracing::warn!(error = %detail, "Cannot publish a checkpoint");
                }
            }
        }
        if swept.is_none_or(|at| at.elapsed() >= pace.sweep) {
            swept = Some(Instant::now());
            if let Err(error) = dispatch::forget_gone(&app.pool).await {
                tracing::warn!(error = %error, "Cannot remove rows of servers that have stopped");
            }
            match app.log().delete_expired_keys().await {
                Ok(0) => {}
                Ok(keys) => tracing::info!(keys, "Deleted expired idempotency keys"),
                Err(error) => {
                    tracing::warn!(error = %error, "Cannot delete expired idempotency keys");
                }
            }
        }
    }
}

/// Publishes the current head. Returns the published position.
async fn publish(app: &App) -> Result<u64, Problem> {
    // The head may grow before the checkpoint is published. A later check then publishes again.
    let position = app.log().head().size;
    app.log().publish_checkpoint(app.keys.current().checkpoints()).await?;
    app.metrics.checkpoint_position.set(position);
    Ok(position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::testing::Started;

    #[tokio::test]
    async fn checkpoints_are_published_and_expired_keys_swept_while_the_server_runs() {
        let started = Started::new().await;
        let app = started.app().clone();
        let expired = "insert into log_command (principal, idempotency_key, request_hash, \
                       first_position, last_position, expires_at) \
                       values ('prn_a', 'old', '', 1, 1, now() - interval '1 hour'), \
                              ('prn_a', 'new', '', 1, 1, now() + interval '1 hour')";
        sqlx::query(expired).execute(&app.pool).await.unwrap();
        let soon = Duration::from_millis(20);
        let pace = Pace { tick: soon, positions: 1000, max_age: soon, sweep: soon };
        tokio::spawn(run(app.clone(), pace));
        let key = app.keys.current().checkpoints().verifying_key();
        for _ in 0..200 {
            let seals = app.log().verify_checkpoints(&[key.into()]).await.unwrap();
            let keys = "select string_agg(idempotency_key, ',') from log_command";
            let keys: String = sqlx::query_scalar(keys).fetch_one(&app.pool).await.unwrap();
            if seals > 0 && keys == "new" {
                return started.server.stop().await;
            }
            tokio::time::sleep(soon).await;
        }
        panic!("nothing was published or swept");
    }

    #[tokio::test]
    async fn pentest_rows_of_servers_that_are_gone_are_removed() {
        let started = Started::new().await;
        let app = started.app();
        let rows = "insert into log_consumer (name, version, shard, position, owner, owner_epoch, lease_until) values \
                    ('server/gone', 1, 0, 0, 'gone', 0, now() - interval '2 hours'), \
                    ('server/away', 1, 0, 0, 'away', 0, now() - interval '5 minutes'), \
                    ('a-consumer', 1, 0, 7, 'gone', 0, now() - interval '2 hours')";
        sqlx::query(rows).execute(&app.pool).await.unwrap();
        dispatch::beat(&app.dispatch, app.log(), &app.pool).await.unwrap();
        // The server's own loop may already have removed the rows.
        dispatch::forget_gone(&app.pool).await.unwrap();
        let names = "select name from log_consumer where name like 'server/%' or name = 'a-consumer' order by name";
        let names: Vec<String> = sqlx::query_scalar(names).fetch_all(&app.pool).await.unwrap();
        let ours = format!("server/{}", app.dispatch.server());
        assert_eq!(names, ["a-consumer", "server/away", ours.as_str()]);
    }
}
