//! The fence: what belongs to an execution is taken only while it has the job.
use std::time::Duration;

use axum::http::HeaderMap;
use domain::{
    ids::{ExecutionId, JobId},
    job::{Job, State},
};
use schemas::runner::EXECUTION;

use super::caller;
use crate::{
    auth::Runner,
    dispatch,
    problem::{Code, Problem},
    state::App,
};

/// How often it is looked whether this server has heard of a claim, and how long it takes to look again.
const LOOKS: u32 = 20;
const LOOK: Duration = Duration::from_millis(50);

/// The execution that a call belongs to.
pub fn named(headers: &HeaderMap) -> Result<ExecutionId, Problem> {
    let header = headers.get(EXECUTION).and_then(|value| value.to_str().ok());
    let named = header.and_then(|value| value.trim().parse().ok());
    named.ok_or_else(|| {
        Problem::new(Code::BadRequest, "send the header `Execution` with the id of the execution")
    })
}

/// 412: another execution has the job, or it is over. The runner stops reporting and keeps its files.
pub fn stale(job: &Job) -> Problem {
    let state = dispatch::state(job);
    let detail = format!("the execution does not have the job any more, which is {state}");
    Problem::new(Code::Fenced, detail).with("job_state", state)
}

/// That this job is one of the runner's: of its install, and not in the hands of another runner.
pub fn its_own(runner: &Runner, job: &Job, execution: ExecutionId) -> Result<(), Problem> {
    if job.work.is_none() {
        return Err(Problem::not_found("the job"));
    }
    let anothers = job.runner_of(execution).is_some_and(|by| by != runner.id);
    if anothers || !caller::may_have(runner, job) {
        return Err(Problem::new(Code::Forbidden, "the job is not this runner's"));
    }
    Ok(())
}

/// That the execution is or was this runner's: only then is anything of it looked for. What it still
/// may say is for the job to decide.
pub async fn may_report(
    app: &App,
    runner: &Runner,
    job: JobId,
    execution: ExecutionId,
) -> Result<(), Problem> {
    let known = app.engine.load::<Job>(job).await?;
    its_own(runner, &known, execution)?;
    if has_had(&known, execution) {
        return Ok(());
    }
    // The claim may be a moment old, or another server's.
    let loaded = app.engine.log().reload::<Job>(&job.to_string()).await?.state;
    its_own(runner, &loaded, execution)?;
    if has_had(&loaded, execution) { Ok(()) } else { Err(stale(&loaded)) }
}

fn has_had(job: &Job, execution: ExecutionId) -> bool {
    let current = match &job.state {
        State::Claimed(held) | State::Running(held) | State::OutcomeUnknown(held) => Some(held.id),
        State::Ended { execution, .. } => *execution,
        State::Unborn | State::Queued { .. } => None,
    };
    current == Some(execution) || job.lost.iter().any(|lost| lost.id == execution)
}

/// That the runner has this execution now, whatever its job. A claim that is a moment old is waited for.
pub async fn at_work(app: &App, runner: &Runner, execution: ExecutionId) -> Result<(), Problem> {
    for _ in 0..LOOKS {
        if app.dispatch.works_on(runner.id, execution) {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(Problem::new(Code::Fenced, "the runner does not have this execution"))
}

/// That the execution may add to its log: it has the job, or it ended the job and its log is open.
///
/// What this server has heard is enough for a yes; a no is checked at the database, because the claim
/// may be a moment old, or another server's.
pub async fn may_log(
    app: &App,
    runner: &Runner,
    job: JobId,
    execution: ExecutionId,
) -> Result<(), Problem> {
    if app.dispatch.writes_log(runner.id, job, execution) {
        return Ok(());
    }
    let loaded = app.engine.log().reload::<Job>(&job.to_string()).await?.state;
    its_own(runner, &loaded, execution)?;
    let current = match &loaded.state {
        State::Claimed(held) | State::Running(held) | State::OutcomeUnknown(held) => Some(held.id),
        State::Ended { execution, .. } => *execution,
        State::Unborn | State::Queued { .. } => None,
    };
    let sealed = loaded.logs.iter().any(|log| log.execution == execution);
    if current == Some(execution) && !sealed { Ok(()) } else { Err(stale(&loaded)) }
}
