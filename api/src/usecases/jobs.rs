//! Cancellation and resolution of jobs.
use domain::{
    ids::{ExecutionId, JobId},
    job::{Job, JobCommand, Resolution},
};
use futures::FutureExt as _;

use crate::{
    execute::{Call, Done},
    problem::Problem,
    state::App,
};

/// Requests that the runner cancels a job. `force` omits the grace period.
pub async fn cancel(
    app: &App,
    call: &Call,
    job: JobId,
    reason: String,
    force: bool,
) -> Result<Done<()>, Problem> {
    let by = call.meta.actor.clone();
    let command = JobCommand::RequestCancel { by, reason, force };
    handle_command(app, call, job, command).await
}

/// Resolves an execution with an unknown outcome.
pub async fn resolve(
    app: &App,
    call: &Call,
    job: JobId,
    execution: ExecutionId,
    resolution: Resolution,
    reason: String,
) -> Result<Done<()>, Problem> {
    let by = call.meta.actor.clone();
    let command = JobCommand::Resolve { execution, by, resolution, reason };
    handle_command(app, call, job, command).await
}

/// Handles one command of a job in its own commit.
async fn handle_command(
    app: &App,
    call: &Call,
    job: JobId,
    command: JobCommand,
) -> Result<Done<()>, Problem> {
    let engine = &app.engine;
    engine
        .transact(call, move |unit| {
            let command = command.clone();
            async move { unit.handle::<Job>(job, command).await.map(|_| ()) }.boxed()
        })
        .await
}
