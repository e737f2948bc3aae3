//! Detects lost contact and elapsed deadlines, and sends the resulting commands to jobs and
//! runners. The log has an event for each transition, but none for renewals of a lease.
use domain::{
    actor::Actor,
    ids::{ExecutionId, JobId},
    job::{Job, JobCommand},
    runner::{Runner, RunnerCommand},
};
use event_log::{Meta, SessionGuard};
use futures::{StreamExt as _, stream};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    dispatch::{self, Census, TimeoutCommand},
    execute::Call,
    ids,
    problem::{Code, Problem},
    state::App,
    usecases::jobs::finalize_incomplete_log,
};

/// Maximum number of concurrent timeout commands. The log commits concurrent commands in one batch.
const MAX_CONCURRENT: usize = 32;

/// Applies elapsed timeouts until the server stops.
pub(crate) async fn run(app: App) {
    let mut ticks = interval(app.dispatch.timing().tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut beat = app.dispatch.moment().instant;
    let mut was_stale = false;
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => {
                app.dispatch.stop();
                return;
            }
            _ = ticks.tick() => {}
        }
        update_gauges(&app);
        // The server rejects runners while the log is stale, so missing calls are not the runners'
        // fault.
        let is_stale = app.principals.check_current(app.log()).is_err();
        if was_stale && !is_stale {
            app.dispatch.renew_owned();
        }
        was_stale = is_stale;
        let now = app.dispatch.moment();
        if now.instant >= beat {
            beat = now.instant + app.dispatch.timing().lease / 3;
            heartbeat(&app).await;
        }
        if is_stale {
            continue;
        }
        app.dispatch.state().on_tick(now, app.dispatch.timing());
        let due = app.dispatch.due(now);
        stream::iter(due).for_each_concurrent(MAX_CONCURRENT, |due| apply_timeout(&app, due)).await;
    }
}

/// Writes this server's heartbeat, and takes over the sessions of servers without one.
async fn heartbeat(app: &App) {
    let beat = dispatch::beat(&app.dispatch, app.engine.log(), &app.pool).await;
    if let Err(problem) = beat {
        tracing::warn!(error = %problem.detail, "Cannot write the heartbeat of this server");
    }
}

fn update_gauges(app: &App) {
    let Census { queued, claimed: held, sessions, long_polls: parked } = app.dispatch.census();
    app.metrics.jobs_queued.set(queued as u64);
    app.metrics.jobs_claimed.set(held as u64);
    app.metrics.runner_sessions.set(sessions as u64);
    app.metrics.runner_long_polls.set(parked as u64);
}

async fn apply_timeout(app: &App, due: TimeoutCommand) {
    #[cfg(feature = "fault-injection")]
    if super::fault_injection::reap_by_update(app, &due).await {
        return;
    }
    let result = match due.clone() {
        TimeoutCommand::Job { job, command, guard } => handle_job(app, job, *command, guard).await,
        TimeoutCommand::RunnerDisconnected { runner, since, guard } => {
            let call = call(Some(guard));
            let result = app.engine.transact(&call, move |unit| {
                let command = RunnerCommand::Disconnect { last_contact_at: since, stopped: false };
                Box::pin(unit.handle::<Runner>(runner, command))
            });
            result.await.map(|_| ())
        }
        TimeoutCommand::FinalizeLog { job, execution, length } => {
            finalize_log(app, job, execution, length).await
        }
    };
    match result {
        Ok(()) => log_timeout(&due),
        // Another server owns the runner now and applies its timeouts.
        Err(problem) if problem.code == Code::SessionSuperseded => {
            let guard = match &due {
                TimeoutCommand::Job { guard, .. } => guard.as_ref(),
                TimeoutCommand::RunnerDisconnected { guard, .. } => Some(guard),
                TimeoutCommand::FinalizeLog { .. } => None,
            };
            if let Some(Ok(runner)) = guard.map(|guard| guard.runner.parse()) {
                app.dispatch.disown(runner);
            }
        }
        Err(problem) => {
            let (subject, timeout) = (subject(&due), timeout(&due));
            tracing::warn!(%subject, timeout, error = %problem.detail, "Cannot record a timeout, trying again");
        }
    }
}

/// Finalizes a log that never received its end, unless another server stored more of it meanwhile.
async fn finalize_log(
    app: &App,
    job: JobId,
    execution: ExecutionId,
    length: u64,
) -> Result<(), Problem> {
    let stored = app.logs.length(execution).await?;
    if stored != length {
        app.dispatch.log_grew(job, execution, stored);
        return Ok(());
    }
    finalize_incomplete_log(app, meta(), job, execution).await
}

/// Logs a timeout whose command was handled.
fn log_timeout(due: &TimeoutCommand) {
    let timeout = timeout(due);
    match due {
        TimeoutCommand::Job { job, .. } => {
            tracing::info!(job.id = %job, timeout, "Handled a timeout")
        }
        TimeoutCommand::RunnerDisconnected { runner, .. } => {
            tracing::warn!(runner.id = %runner, timeout, "Handled a timeout");
        }
        TimeoutCommand::FinalizeLog { job, execution, .. } => {
            tracing::info!(job.id = %job, execution.id = %execution, timeout, "Handled a timeout");
        }
    }
}

/// Id of the job or runner that the timeout belongs to.
fn subject(due: &TimeoutCommand) -> String {
    match due {
        TimeoutCommand::Job { job, .. } | TimeoutCommand::FinalizeLog { job, .. } => {
            job.to_string()
        }
        TimeoutCommand::RunnerDisconnected { runner, .. } => runner.to_string(),
    }
}

/// Name of an elapsed timeout.
fn timeout(due: &TimeoutCommand) -> &'static str {
    match due {
        TimeoutCommand::Job { command, .. } => match &**command {
            JobCommand::Disconnect { .. } => "contact_lost",
            JobCommand::DeclareLost { .. } => "execution_lost",
            JobCommand::DeclareCancelUnconfirmed { .. } => "cancel_unconfirmed",
            JobCommand::Expire { .. } => "queue_expired",
            JobCommand::Queue(_)
            | JobCommand::FailUnclaimed { .. }
            | JobCommand::Claim { .. }
            | JobCommand::Report { .. }
            | JobCommand::Reattach { .. }
            | JobCommand::Resolve { .. }
            | JobCommand::RequestCancel { .. }
            | JobCommand::FinalizeLog(_)
            | JobCommand::RecordDivergence { .. }
            | JobCommand::RecordLateResult { .. } => "other",
        },
        TimeoutCommand::RunnerDisconnected { .. } => "runner_disconnected",
        TimeoutCommand::FinalizeLog { .. } => "log_incomplete",
    }
}

async fn handle_job(
    app: &App,
    job: JobId,
    command: JobCommand,
    guard: Option<SessionGuard>,
) -> Result<(), Problem> {
    let call = call(guard);
    let result = app.engine.transact(&call, move |unit| {
        let command = command.clone();
        Box::pin(async move {
            // A report that was committed first makes the timeout obsolete, so its rejection is
            // ignored.
            unit.try_handle::<Job>(job, command).await.map(|_| ())
        })
    });
    result.await.map(|_| ())
}

fn meta() -> Meta {
    Meta::new(Actor::Timer("liveness".into()), ids::new_ulid().to_string())
}

fn call(guard: Option<SessionGuard>) -> Call {
    Call { sessions: guard.into_iter().collect(), ..Call::of(meta()) }
}
