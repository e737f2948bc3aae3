//! Cancellation and resolution of jobs, and finalization of their logs.
use domain::{
    ids::{ExecutionId, JobId},
    job::{FinalizedLog, Job, JobCommand, JobError, Resolution},
};
use event_log::Meta;
use futures::FutureExt as _;

use crate::{
    execute::{Call, Done, UnitOfWork},
    problem::Problem,
    state::App,
};

/// Requests the cancellation of a job. `force` shortens the grace period to 5 seconds.
pub(crate) async fn cancel(
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
pub(crate) async fn resolve(
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

/// Finalizes a log within a larger unit of work.
pub(crate) async fn finalize_log(
    unit: &mut UnitOfWork,
    job: JobId,
    log: FinalizedLog,
) -> Result<(), Problem> {
    match unit.try_handle::<Job>(job, JobCommand::FinalizeLog(log)).await? {
        // The log was already finalized, and its recorded length and digest remain.
        Ok(_) | Err(JobError::LogAlreadyFinalized) => Ok(()),
        Err(refused) => Err(refused.into()),
    }
}

/// Finalizes a log whose rest will not arrive.
pub(crate) async fn finalize_incomplete_log(
    app: &App,
    meta: Meta,
    job: JobId,
    execution: ExecutionId,
) -> Result<(), Problem> {
    // The measured bytes must not change, so the log is closed for further chunks first.
    let (length_bytes, sha256) = app.logs.end(execution).await?;
    let log = FinalizedLog { execution, length_bytes, sha256, omitted_bytes: 0, complete: false };
    let call = Call::of(meta);
    let finalized = app.engine.transact(&call, move |unit| {
        let log = log.clone();
        Box::pin(finalize_log(unit, job, log))
    });
    finalized.await?;
    app.logs.forget(execution);
    Ok(())
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
