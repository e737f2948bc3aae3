//! The seal: an execution that is over has a log whose length and digest are in the log of events.
use domain::{
    ids::{ExecutionId, JobId},
    job::{Job, JobCommand, JobError, SealedLog},
};
use event_log::Meta;
use schemas::runner::Finished;

use super::caller;
use crate::{
    auth::Runner,
    execute::Call,
    logs::Fit,
    problem::{Code, Problem},
    state::App,
};

/// Seal the log if it is what the runner announced. `Some`: bytes are missing, so many are here.
pub async fn seal(
    app: &App,
    runner: &Runner,
    job: JobId,
    execution: ExecutionId,
    last: &Finished,
) -> Result<Option<u64>, Problem> {
    let loaded = app.engine.load::<Job>(job).await?;
    if loaded.logs.iter().any(|log| log.execution == execution) {
        return Ok(None);
    }
    let sha256 = format!("sha256:{}", last.log_sha256.trim_start_matches("sha256:"));
    let sha256 = sha256.parse().map_err(|error| {
        Problem::new(Code::Invalid, format!("log_sha256 cannot be read: {error}"))
    })?;
    match app.logs.fit(execution, last.log_len, &sha256).await? {
        Fit::Incomplete(have) => Ok(Some(have)),
        Fit::Mismatch => {
            app.logs.rewind(execution).await?;
            let detail = "the bytes that are here have another digest; send the log from its start";
            Err(Problem::new(Code::LogMismatch, detail).with("have", 0))
        }
        Fit::Complete => {
            let log = SealedLog {
                execution,
                length_bytes: last.log_len,
                sha256,
                omitted_bytes: last.omitted,
                complete: true,
            };
            let call = caller::call(runner, "/runner/v1/jobs/{job}/events");
            tell(app, &call, job, log).await.map(|()| None)
        }
    }
}

/// Seal what a job that was never started has written: mostly nothing.
pub async fn seal_unwritten(
    app: &App,
    runner: &Runner,
    job: JobId,
    execution: ExecutionId,
) -> Result<(), Problem> {
    let (length_bytes, sha256) = app.logs.measure(execution).await?;
    if length_bytes > 0 {
        return Ok(());
    }
    let log = SealedLog { execution, length_bytes, sha256, omitted_bytes: 0, complete: true };
    tell(app, &caller::call(runner, "/runner/v1/jobs/{job}/events"), job, log).await
}

/// Nobody sends the rest any more: seal what is there.
pub async fn seal_incomplete(
    app: &App,
    meta: Meta,
    job: JobId,
    execution: ExecutionId,
) -> Result<(), Problem> {
    let (length_bytes, sha256) = app.logs.measure(execution).await?;
    let log = SealedLog { execution, length_bytes, sha256, omitted_bytes: 0, complete: false };
    tell(app, &Call::of(meta), job, log).await
}

async fn tell(app: &App, call: &Call, job: JobId, log: SealedLog) -> Result<(), Problem> {
    let execution = log.execution;
    let told = app.engine.transact(call, move |unit| {
        let command = JobCommand::SealLog(log.clone());
        Box::pin(async move {
            match unit.ask::<Job>(job, command).await? {
                // It was sealed without its end before; what is in the log of events stands.
                Ok(_) | Err(JobError::AlreadySealed) => Ok(()),
                Err(refused) => Err(refused.into()),
            }
        })
    });
    told.await.map_err(caller::again)?;
    app.logs.close(execution);
    Ok(())
}
