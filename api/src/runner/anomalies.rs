//! Records suspicious calls that were rejected.
use domain::{
    ids::{ExecutionId, JobId},
    job::{Job, JobCommand},
    runner::{self as aggregate, RunnerCommand},
};

use super::caller;
use crate::{
    extract::RunnerCaller,
    problem::{Code, Problem},
    state::App,
};

/// Records a forgery attempt if the call was rejected as a report on another runner's job, or as a
/// false statement. The number of records is limited.
pub(super) async fn record_forgery<T>(
    app: &App,
    runner: &RunnerCaller,
    (job, execution): (JobId, ExecutionId),
    result: Result<T, Problem>,
) -> Result<T, Problem> {
    let rejection = match result {
        Ok(response) => return Ok(response),
        Err(rejection) => rejection,
    };
    let calls = match matches!(rejection.code, Code::Forbidden | Code::StatementInvalid) {
        true => app.dispatch.count_forgery(runner.id),
        false => None,
    };
    let Some(calls) = calls else { return Err(rejection) };
    let id = runner.id;
    tracing::warn!(runner.id = %id, job.id = %job, calls, error = %rejection.detail, "Rejected a forged report from a runner");
    let call = caller::call(runner, "/runner/v1/jobs/{job}");
    let recorded = app.engine.transact(&call, move |unit| {
        let suspect = RunnerCommand::SuspectForgery { job, execution, calls };
        Box::pin(unit.handle::<aggregate::Runner>(id, suspect))
    });
    if let Err(problem) = recorded.await {
        // The call stays rejected. If the runner tries again, the server may record a later
        // attempt.
        tracing::warn!(runner.id = %id, error = %problem.detail, "Cannot record a forged report");
    }
    Err(rejection)
}

/// Records that a runner sent different bytes for stored log bytes, once per execution.
pub(super) async fn record_divergence(
    app: &App,
    runner: &RunnerCaller,
    (job, execution): (JobId, ExecutionId),
    offset_bytes: u64,
) -> Result<(), Problem> {
    tracing::warn!(job.id = %job, execution.id = %execution, offset_bytes, "Runner sent different bytes for stored log bytes");
    let call = caller::call(runner, "/runner/v1/jobs/{job}/log");
    let recorded = app.engine.transact(&call, move |unit| {
        let note = JobCommand::RecordDivergence { execution, offset_bytes };
        Box::pin(unit.handle::<Job>(job, note))
    });
    recorded.await.map(drop).map_err(caller::retryable)
}
