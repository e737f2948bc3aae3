//! Records state transitions that a runner's contact causes. Most calls cause none.
use domain::{
    actor::Actor,
    job::{Job, JobCommand},
    runner::{self as aggregate, RunnerCommand, Side},
};

use super::caller;
use crate::{dispatch::ContactChanges, extract::RunnerCaller, problem::Problem, state::App};

/// Records reattached jobs, a reconnected runner, and a runner that its operator disabled or
/// enabled. If the database is unavailable, the runner's call succeeds anyway and the next call
/// retries.
pub(super) async fn record_contact(
    app: &App,
    runner: &RunnerCaller,
    touched: ContactChanges,
    why: Option<&str>,
) {
    if touched == ContactChanges::default() {
        return;
    }
    if let Err(problem) = append_transitions(app, runner, touched, why).await {
        tracing::warn!(runner.id = %runner.id, error = %problem.detail, "Cannot record the contact of a runner; the server retries at the runner's next call");
    }
}

async fn append_transitions(
    app: &App,
    runner: &RunnerCaller,
    touched: ContactChanges,
    why: Option<&str>,
) -> Result<(), Problem> {
    let call = caller::call(runner, "/runner/v1/poll");
    for (job, execution) in touched.reattach {
        let recorded = app.engine.transact(&call, move |unit| {
            Box::pin(async move {
                // The execution may have lost the job meanwhile. The server then rejects its next
                // report.
                unit.try_handle::<Job>(job, JobCommand::Reattach { execution }).await.map(|_| ())
            })
        });
        recorded.await?;
    }
    if touched.reconnected {
        record_reconnect(app, runner).await?;
    }
    if let Some(off) = touched.disabled_changed {
        let (id, side) = (runner.id, Side::Customer);
        let reason = why.unwrap_or("disabled on its host").to_string();
        let recorded = app.engine.transact(&call, move |unit| {
            let by = Actor::Runner(id);
            let command = match off {
                true => RunnerCommand::Disable { side, by, reason: reason.clone() },
                false => RunnerCommand::Enable { side, by, reason: None },
            };
            Box::pin(unit.handle::<aggregate::Runner>(id, command))
        });
        recorded.await?;
    }
    Ok(())
}

/// Records that the runner reconnected, if it was recorded as disconnected.
pub(super) async fn record_reconnect(app: &App, runner: &RunnerCaller) -> Result<(), Problem> {
    let disconnected = app
        .dispatch
        .state()
        .runners
        .get(runner.id)
        .map(|known| known.runner.disconnected_since.is_some() && !known.runner.revoked);
    if disconnected != Some(true) {
        return Ok(());
    }
    let (call, id) = (caller::call(runner, "/runner/v1/poll"), runner.id);
    let recorded = app.engine.transact(&call, move |unit| {
        Box::pin(unit.handle::<aggregate::Runner>(id, RunnerCommand::Reconnect))
    });
    recorded.await.map(|_| ())
}
