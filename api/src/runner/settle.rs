//! What a sign of life changes in the log: edges only, and most calls have none.
use domain::{
    actor::Actor,
    job::{Job, JobCommand},
    runner::{self as aggregate, RunnerCommand, Side},
};

use super::caller;
use crate::{auth::Runner, dispatch::Touched, problem::Problem, state::App};

/// Tell the jobs and the runner that the silence is over. When the database does not answer, the next
/// call tries again: a runner is never refused for it.
pub async fn settle(app: &App, runner: &Runner, touched: Touched, why: Option<&str>) {
    if touched == Touched::default() {
        return;
    }
    if let Err(problem) = edges(app, runner, touched, why).await {
        tracing::warn!(runner.id = %runner.id, reason = %problem.detail, "The return of {} is not in the log yet: {}", runner.id, problem.detail);
    }
}

async fn edges(
    app: &App,
    runner: &Runner,
    touched: Touched,
    why: Option<&str>,
) -> Result<(), Problem> {
    let call = caller::call(runner, "/runner/v1/poll");
    for (job, execution) in touched.reattach {
        let told = app.engine.transact(&call, move |unit| {
            Box::pin(async move {
                // It may have lost the job meanwhile: its next report will hear so.
                unit.ask::<Job>(job, JobCommand::Reattach { execution }).await.map(|_| ())
            })
        });
        told.await?;
    }
    if touched.returned {
        returned(app, runner).await?;
    }
    if let Some(off) = touched.switched {
        let (id, side) = (runner.id, Side::Customer);
        let reason = why.unwrap_or("switched off on the spot").to_string();
        let told = app.engine.transact(&call, move |unit| {
            let by = Actor::Runner(id);
            let command = match off {
                true => RunnerCommand::Disable { side, by, reason: reason.clone() },
                false => RunnerCommand::Enable { side, by, reason: None },
            };
            Box::pin(unit.tell::<aggregate::Runner>(id, command))
        });
        told.await?;
    }
    Ok(())
}

/// Tell the runner that it is back, if it was told that it is silent.
pub async fn returned(app: &App, runner: &Runner) -> Result<(), Problem> {
    let silent = app
        .dispatch
        .desk()
        .roster
        .get(runner.id)
        .map(|known| known.runner.disconnected_since.is_some() && !known.runner.revoked);
    if silent != Some(true) {
        return Ok(());
    }
    let (call, id) = (caller::call(runner, "/runner/v1/poll"), runner.id);
    let told = app.engine.transact(&call, move |unit| {
        Box::pin(unit.tell::<aggregate::Runner>(id, RunnerCommand::Reconnect))
    });
    told.await.map(|_| ())
}
