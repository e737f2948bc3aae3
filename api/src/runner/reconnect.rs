//! Records state transitions that a runner's contact causes. Most calls cause none.
use domain::{
    actor::Actor,
    job::{Job, JobCommand},
    runner::{self as aggregate, RunnerCommand, Side},
};

use super::caller;
use crate::{dispatch::ContactChanges, extract::RunnerCaller, problem::Problem, state::App};

/// Records reattached jobs and a reconnected runner. If the database is unavailable, the runner's
/// call succeeds anyway and the next call retries.
pub async fn settle(app: &App, runner: &RunnerCaller, touched: ContactChanges, why: Option<&str>) {
    if touched == ContactChanges::default() {
        return;
    }
    if let Err(problem) = append_transitions(app, runner, touched, why).await {
        tracing::warn!(runner.id = %runner.id, error = %problem.detail, "Cannot record that a runner reconnected, trying again");
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
        let told = app.engine.transact(&call, move |unit| {
            Box::pin(async move {
                // The execution may have lost the job meanwhile, and its next report is rejected
                // then.
                unit.try_handle::<Job>(job, JobCommand::Reattach { execution }).await.map(|_| ())
            })
        });
        told.await?;
    }
    if touched.reconnected {
        returned(app, runner).await?;
    }
    if let Some(off) = touched.disabled_changed {
        let (id, side) = (runner.id, Side::Customer);
        let reason = why.unwrap_or("disabled on its host").to_string();
        let told = app.engine.transact(&call, move |unit| {
            let by = Actor::Runner(id);
            let command = match off {
                true => RunnerCommand::Disable { side, by, reason: reason.clone() },
                false => RunnerCommand::Enable { side, by, reason: None },
            };
            Box::pin(unit.handle::<aggregate::Runner>(id, command))
        });
        told.await?;
    }
    Ok(())
}

/// Records that the runner reconnected, if it was recorded as disconnected.
pub async fn returned(app: &App, runner: &RunnerCaller) -> Result<(), Problem> {
    let silent = app
        .dispatch
        .state()
        .runners
        .get(runner.id)
        .map(|known| known.runner.disconnected_since.is_some() && !known.runner.revoked);
    if silent != Some(true) {
        return Ok(());
    }
    let (call, id) = (caller::call(runner, "/runner/v1/poll"), runner.id);
    let told = app.engine.transact(&call, move |unit| {
        Box::pin(unit.handle::<aggregate::Runner>(id, RunnerCommand::Reconnect))
    });
    told.await.map(|_| ())
}
