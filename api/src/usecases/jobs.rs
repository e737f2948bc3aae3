//! Jobs: cancelled, resolved.
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

/// Ask a job's runner to stop; with `force`, without patience.
pub async fn cancel(
    app: &App,
    call: &Call,
    job: JobId,
    reason: String,
    force: bool,
) -> Result<Done<()>, Problem> {
    let by = call.meta.actor.clone();
    let command = JobCommand::RequestCancel { by, reason, force };
    tell(app, call, job, command).await
}

/// Say what became of an execution that nobody can ask any more.
pub async fn resolve(
    app: &App,
    call: &Call,
    job: JobId,
    execution: ExecutionId,
    verdict: Resolution,
    reason: String,
) -> Result<Done<()>, Problem> {
    let by = call.meta.actor.clone();
    let command = JobCommand::Resolve { execution, by, verdict, reason };
    tell(app, call, job, command).await
}

/// Tell a job something, and nothing else in the same commit.
async fn tell(
    app: &App,
    call: &Call,
    job: JobId,
    command: JobCommand,
) -> Result<Done<()>, Problem> {
    let engine = &app.engine;
    engine
        .transact(call, move |unit| {
            let command = command.clone();
            async move { unit.tell::<Job>(job, command).await.map(|_| ()) }.boxed()
        })
        .await
}
