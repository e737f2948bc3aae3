//! What every call of a runner shares: its place in the log, its allowance, and that it is known here.
use domain::{
    ids::RunnerId,
    job::{Job, Origin},
    runner as aggregate,
};
use event_log::Meta;
use schemas::runner::RunnerMode;
use ulid::Ulid;

use crate::{
    auth::Runner,
    dispatch::Calls,
    execute::Call,
    problem::{Code, Problem},
    state::App,
};

/// Whether a job is for a runner like this one.
pub fn may_have(runner: &Runner, job: &Job) -> bool {
    job.work.as_ref().is_some_and(|work| match work.origin {
        Origin::Build { .. } => runner.mode == RunnerMode::Build,
        Origin::Step { install, .. } => runner.install == Some(install),
    })
}

/// What the log says beside the events that a call of a runner causes.
pub fn call(runner: &Runner, route: &'static str) -> Call {
    let meta = Meta::new(runner.actor(), Ulid::new().to_string());
    Call::of(Meta { route: Some(route.into()), ..meta })
}

/// A runner takes most refusals for the last word. That others changed the same thing at the same
/// moment is none: it should simply ask again.
pub fn again(problem: Problem) -> Problem {
    if problem.code == Code::Conflict {
        Problem::new(Code::Busy, problem.detail).retry_after(1)
    } else {
        problem
    }
}

/// Take one call of the runner's allowance.
pub fn allow(app: &App, runner: &Runner, calls: Calls) -> Result<(), Problem> {
    app.dispatch.allow(runner.id, calls).map_err(|seconds| {
        Problem::new(Code::RateLimited, "the runner calls too often").retry_after(seconds)
    })
}

/// Make sure that this server knows the runner: one query in the life of the server. From then on
/// the log's tail keeps it current.
pub async fn meet(app: &App, id: RunnerId) -> Result<(), Problem> {
    if app.dispatch.desk().roster.get(id).is_some() {
        return Ok(());
    }
    let loaded = app.engine.log().reload::<aggregate::Runner>(&id.to_string()).await?;
    if loaded.state.identity.is_none() {
        return Err(Problem::new(Code::TokenUnknown, "the runner is not known here"));
    }
    let now = app.dispatch.moment().instant;
    let mut desk = app.dispatch.desk();
    desk.roster.meet(id, (*loaded.state).clone(), loaded.version, now);
    Ok(())
}
