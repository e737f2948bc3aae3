//! What is refused, changes nothing, and is worth a line of the log all the same.
use domain::{
    ids::{ExecutionId, JobId},
    job::{Job, JobCommand},
    runner::{self as aggregate, RunnerCommand},
};

use super::caller;
use crate::{
    auth::Runner,
    problem::{Code, Problem},
    state::App,
};

/// Note that a runner spoke of a job that is not its own, or signed what is not so, if that is why it was refused.
/// However often it does so, the log has few lines of it.
pub async fn forged<T>(
    app: &App,
    runner: &Runner,
    (job, execution): (JobId, ExecutionId),
    answered: Result<T, Problem>,
) -> Result<T, Problem> {
    let refused = match answered {
        Ok(answer) => return Ok(answer),
        Err(refused) => refused,
    };
    let calls = match matches!(refused.code, Code::Forbidden | Code::StatementInvalid) {
        true => app.dispatch.forged(runner.id),
        false => None,
    };
    let Some(calls) = calls else { return Err(refused) };
    let id = runner.id;
    tracing::warn!(runner.id = %id, job.id = %job, calls, "{id} spoke of {job} what is not its to say: {}", refused.detail);
    let call = caller::call(runner, "/runner/v1/jobs/{job}");
    let told = app.engine.transact(&call, move |unit| {
        let suspect = RunnerCommand::SuspectForgery { job, execution, calls };
        Box::pin(unit.tell::<aggregate::Runner>(id, suspect))
    });
    if let Err(problem) = told.await {
        // The refusal is what counts. A runner that goes on is said again after a while.
        tracing::warn!(runner.id = %id, reason = %problem.detail, "That is not in the log: {}", problem.detail);
    }
    Err(refused)
}

/// Note that a runner sent other bytes for a place of a log that is kept already: once for each execution.
pub async fn diverged(
    app: &App,
    runner: &Runner,
    (job, execution): (JobId, ExecutionId),
    offset_bytes: u64,
) -> Result<(), Problem> {
    tracing::warn!(job.id = %job, execution.id = %execution, "The log of {execution} was rewritten by its runner at {offset_bytes}");
    let call = caller::call(runner, "/runner/v1/jobs/{job}/log");
    let told = app.engine.transact(&call, move |unit| {
        let note = JobCommand::NoteDivergence { execution, offset_bytes };
        Box::pin(unit.tell::<Job>(job, note))
    });
    told.await.map(drop).map_err(caller::again)
}
