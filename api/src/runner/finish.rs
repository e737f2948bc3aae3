//! The seal: an execution that is over has a log whose length and digest are in the log of events.
use domain::{
    ids::{ExecutionId, JobId},
    job::{FinalizedLog, Job, JobCommand, JobError},
};
use event_log::Meta;
use schemas::runner::{Finished, ReportBody};

use super::caller;
use crate::{
    execute::{Call, Unit},
    logs::Fit,
    problem::{Code, Problem},
    state::App,
};

/// What can be said of a log when its execution ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Seal {
    /// It is all here: it is sealed in the commit of the last word.
    Ready(FinalizedLog),
    /// Bytes are missing; so many are here.
    Incomplete(u64),
    /// It is not what was announced.
    Mismatch,
}

/// Hold the log of an execution against its last word. `None`: this is no last word, or there is a
/// log and nothing was announced.
pub async fn look(
    app: &App,
    execution: ExecutionId,
    body: &ReportBody,
) -> Result<Option<Seal>, Problem> {
    match body {
        ReportBody::Finished(last) => announced(app, execution, last).await.map(Some),
        ReportBody::Refused { .. } => unwritten(app, execution).await,
        ReportBody::Started {}
        | ReportBody::Phase { .. }
        | ReportBody::Plan(_)
        | ReportBody::Outputs { .. }
        | ReportBody::State(_)
        | ReportBody::Artifact(_)
        | ReportBody::CancelProgress { .. } => Ok(None),
    }
}

async fn announced(app: &App, execution: ExecutionId, last: &Finished) -> Result<Seal, Problem> {
    let sha256 = format!("sha256:{}", last.log_sha256.trim_start_matches("sha256:"));
    let sha256 = sha256.parse().map_err(|error| {
        Problem::new(Code::Invalid, format!("log_sha256 cannot be read: {error}"))
    })?;
    let (length_bytes, omitted_bytes) = (last.log_len, last.omitted);
    Ok(match app.logs.fit(execution, length_bytes, &sha256).await? {
        Fit::Incomplete(have) => Seal::Incomplete(have),
        Fit::Mismatch => Seal::Mismatch,
        Fit::Complete => {
            let complete = true;
            Seal::Ready(FinalizedLog { execution, length_bytes, sha256, omitted_bytes, complete })
        }
    })
}

/// A job that was refused before it started has mostly written nothing.
async fn unwritten(app: &App, execution: ExecutionId) -> Result<Option<Seal>, Problem> {
    let (length_bytes, sha256) = app.logs.measure(execution).await?;
    let log = FinalizedLog { execution, length_bytes, sha256, omitted_bytes: 0, complete: true };
    Ok((length_bytes == 0).then_some(Seal::Ready(log)))
}

/// Seal a log as a part of something larger.
pub async fn tell(unit: &mut Unit, job: JobId, log: FinalizedLog) -> Result<(), Problem> {
    match unit.ask::<Job>(job, JobCommand::FinalizeLog(log)).await? {
        // It was sealed without its end before; what is in the log of events stands.
        Ok(_) | Err(JobError::LogAlreadyFinalized) => Ok(()),
        Err(refused) => Err(refused.into()),
    }
}

/// What is left to do when the last word is in the log of events. `Some`: bytes are missing.
pub async fn settle(
    app: &App,
    job: JobId,
    execution: ExecutionId,
    seal: Seal,
) -> Result<Option<u64>, Problem> {
    match seal {
        Seal::Ready(_) => {
            app.logs.close(execution);
            Ok(None)
        }
        // Sealed without its end, or with other bytes: nothing can be mended any more.
        Seal::Incomplete(_) | Seal::Mismatch if is_sealed(app, job, execution).await? => Ok(None),
        Seal::Incomplete(have) => Ok(Some(have)),
        Seal::Mismatch => {
            app.logs.rewind(execution).await?;
            let detail = "the bytes that are here have another digest; send the log from its start";
            Err(Problem::new(Code::LogMismatch, detail).with("committed_bytes", 0))
        }
    }
}

async fn is_sealed(app: &App, job: JobId, execution: ExecutionId) -> Result<bool, Problem> {
    let loaded = app.engine.log().reload::<Job>(&job.to_string()).await?.state;
    Ok(loaded.logs.iter().any(|log| log.execution == execution))
}

/// Nobody sends the rest any more: seal what is there.
pub async fn seal_incomplete(
    app: &App,
    meta: Meta,
    job: JobId,
    execution: ExecutionId,
) -> Result<(), Problem> {
    // What is measured must stay what it is: a chunk that is on its way finds the end.
    let (length_bytes, sha256) = app.logs.end(execution).await?;
    let log = FinalizedLog { execution, length_bytes, sha256, omitted_bytes: 0, complete: false };
    let call = Call::of(meta);
    let told = app.engine.transact(&call, move |unit| {
        let log = log.clone();
        Box::pin(tell(unit, job, log))
    });
    told.await.map_err(caller::again)?;
    app.logs.close(execution);
    Ok(())
}
