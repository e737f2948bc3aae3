//! Fencing of executions. Checks whether an execution may report about its job or write its log.
use std::time::Duration;

use axum::http::HeaderMap;
use domain::{
    ids::{ExecutionId, JobId},
    job::{Job, State},
};
use schemas::runner::EXECUTION;

use super::caller;
use crate::{
    dispatch,
    extract::RunnerCaller,
    problem::{Code, Problem},
    state::App,
};

/// Maximum number of checks for a claim that this server has not seen yet.
const CLAIM_CHECKS: u32 = 20;

/// Interval between checks for a claim that this server has not seen yet.
const CLAIM_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Execution that a call names in its header.
pub(super) fn execution_header(headers: &HeaderMap) -> Result<ExecutionId, Problem> {
    let header = headers.get(EXECUTION).and_then(|value| value.to_str().ok());
    let named = header.and_then(|value| value.trim().parse().ok());
    named.ok_or_else(|| {
        Problem::new(
            Code::BadRequest,
            "cannot read the header `Execution`: it is missing or invalid; send the id of the execution",
        )
    })
}

/// Problem with status 412 for an execution that no longer holds its job. The runner stops
/// reporting and keeps its files.
pub(super) fn stale_execution(job: &Job) -> Problem {
    let state = dispatch::state(job);
    let detail =
        format!("request rejected: the execution no longer holds the job, which is {state}");
    Problem::new(Code::Fenced, detail).with("job_state", state)
}

/// Checks that the runner may run the job, and that the execution does not belong to another
/// runner.
pub(super) fn check_owner(
    runner: &RunnerCaller,
    job: &Job,
    execution: ExecutionId,
) -> Result<(), Problem> {
    if job.work.is_none() {
        return Err(Problem::not_found("job"));
    }
    let anothers = job.runner_of(execution).is_some_and(|by| by != runner.id);
    if anothers || !caller::may_run(runner, job) {
        return Err(Problem::new(
            Code::Forbidden,
            "request rejected: the job does not belong to this runner",
        ));
    }
    Ok(())
}

/// Checks that the execution belongs or belonged to the runner, before the server reads data of the
/// execution. The job aggregate decides whether the report is accepted.
pub(super) async fn check_may_report(
    app: &App,
    runner: &RunnerCaller,
    job: JobId,
    execution: ExecutionId,
) -> Result<(), Problem> {
    let known = app.engine.load::<Job>(job).await?;
    check_owner(runner, &known, execution)?;
    if has_had(&known, execution) {
        return Ok(());
    }
    // This server may not have seen a recent claim, or a claim at another server.
    let loaded = app.engine.log().reload::<Job>(&job.to_string()).await?.state;
    check_owner(runner, &loaded, execution)?;
    if has_had(&loaded, execution) { Ok(()) } else { Err(stale_execution(&loaded)) }
}

/// Returns true if the execution holds or held the job.
pub(super) fn has_had(job: &Job, execution: ExecutionId) -> bool {
    let current = match &job.state {
        State::Claimed(active) | State::Running(active) | State::OutcomeUnknown(active) => {
            Some(active.id)
        }
        State::Ended { execution, .. } => *execution,
        State::NotCreated | State::Queued { .. } => None,
    };
    current == Some(execution) || job.lost.iter().any(|lost| lost.id == execution)
}

/// Checks that the runner holds this execution, of any job. Waits for a recent claim to arrive.
pub(super) async fn check_running(
    app: &App,
    runner: &RunnerCaller,
    execution: ExecutionId,
) -> Result<(), Problem> {
    for _ in 0..CLAIM_CHECKS {
        if app.dispatch.holds_execution(runner.id, execution) {
            return Ok(());
        }
        tokio::time::sleep(CLAIM_CHECK_INTERVAL).await;
    }
    Err(Problem::new(Code::Fenced, "request rejected: the runner does not hold this execution"))
}

/// Checks that the execution may append to its log: it holds the job, or it ended the job and its
/// log is not finalized.
///
/// The dispatch state is enough to accept a chunk. Before a rejection the server reads the stream,
/// because it may not have seen a recent claim.
pub(super) async fn check_may_log(
    app: &App,
    runner: &RunnerCaller,
    job: JobId,
    execution: ExecutionId,
) -> Result<(), Problem> {
    if app.dispatch.may_write_log(runner.id, job, execution) {
        return Ok(());
    }
    let loaded = app.engine.log().reload::<Job>(&job.to_string()).await?.state;
    check_owner(runner, &loaded, execution)?;
    let current = match &loaded.state {
        State::Claimed(active) | State::Running(active) | State::OutcomeUnknown(active) => {
            Some(active.id)
        }
        State::Ended { execution, .. } => *execution,
        State::NotCreated | State::Queued { .. } => None,
    };
    let finalized = loaded.logs.iter().any(|log| log.execution == execution);
    if current == Some(execution) && !finalized { Ok(()) } else { Err(stale_execution(&loaded)) }
}
