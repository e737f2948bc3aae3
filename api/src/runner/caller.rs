//! Shared parts of runner calls: metadata, rate limit, and loading the runner.
use domain::{
    ids::RunnerId,
    job::{Job, Origin},
    runner as aggregate,
};
use event_log::Meta;
use schemas::runner::RunnerMode;

use crate::{
    dispatch::CallKind,
    execute::Call,
    extract::RunnerCaller,
    ids,
    problem::{Code, Problem},
    state::App,
};

/// Returns true if the runner may run the job: builds and resolutions on build runners, steps on
/// runners of their install.
pub(super) fn may_run(runner: &RunnerCaller, job: &Job) -> bool {
    job.work.as_ref().is_some_and(|work| match work.origin {
        Origin::Build { .. } | Origin::Source { .. } => runner.mode == RunnerMode::Build,
        Origin::Preflight { install, .. } | Origin::Step { install, .. } => {
            runner.install == Some(install)
        }
    })
}

/// Metadata of the events that a runner's call causes.
pub(super) fn call(runner: &RunnerCaller, route: &'static str) -> Call {
    let meta = Meta::new(runner.actor(), ids::new_ulid().to_string());
    Call::of(Meta { route: Some(route.into()), ..meta })
}

/// Converts a conflict into a problem that the runner retries. Runners treat most other problems as
/// final.
pub(super) fn retryable(problem: Problem) -> Problem {
    if problem.code == Code::Conflict {
        Problem::new(Code::Busy, problem.detail).retry_after(1)
    } else {
        problem
    }
}

/// Counts one call against the runner's rate limit.
pub(super) fn allow(app: &App, runner: &RunnerCaller, calls: CallKind) -> Result<(), Problem> {
    app.dispatch.allow(runner.id, calls).map_err(|seconds| {
        Problem::new(
            Code::RateLimited,
            "request rejected: the runner exceeds its rate limit; retry later",
        )
        .retry_after(seconds)
    })
}

/// Loads the runner into the dispatcher. Each server process needs this query once per runner.
/// Afterwards, the tail of the log keeps the entry current.
pub(super) async fn ensure_loaded(app: &App, id: RunnerId) -> Result<(), Problem> {
    if app.dispatch.state().runners.get(id).is_some() {
        return Ok(());
    }
    let loaded = app.engine.log().reload::<aggregate::Runner>(&id.to_string()).await?;
    if loaded.state.identity.is_none() {
        return Err(Problem::new(
            Code::TokenUnknown,
            "request rejected: unknown runner; enrol it with a new enrolment token",
        ));
    }
    let now = app.dispatch.moment().instant;
    let mut dispatch_state = app.dispatch.state();
    dispatch_state.runners.meet(id, (*loaded.state).clone(), loaded.version, now);
    Ok(())
}
