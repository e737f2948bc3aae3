//! Finalizes the log of an ended execution: records its length and digest in the event log.
use domain::{
    ids::{ExecutionId, JobId},
    job::{FinalizedLog, Job},
};
use schemas::runner::{Finished, ReportBody};

use crate::{
    logs::Comparison,
    problem::{Code, Problem},
    state::App,
};

/// State of a log when its execution ends.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FinalLog {
    /// Complete. Finalized in the commit of the final report.
    Ready(FinalizedLog),
    /// Incomplete, with the number of stored bytes.
    Incomplete(u64),
    /// The stored log is at least as long as announced, but differs.
    Mismatch,
}

/// Compares the stored log with the final report. Returns `None` if the report is not final, or if
/// the log of a refused job is not empty.
pub(super) async fn compare_log(
    app: &App,
    execution: ExecutionId,
    body: &ReportBody,
) -> Result<Option<FinalLog>, Problem> {
    match body {
        ReportBody::Finished(last) => announced_log(app, execution, last).await.map(Some),
        ReportBody::Refused { .. } => refused_log(app, execution).await,
        ReportBody::Started { .. }
        | ReportBody::Phase { .. }
        | ReportBody::Plan(_)
        | ReportBody::Outputs { .. }
        | ReportBody::State(_)
        | ReportBody::Artifact(_)
        | ReportBody::Checks { .. }
        | ReportBody::CancelProgress { .. } => Ok(None),
    }
}

async fn announced_log(
    app: &App,
    execution: ExecutionId,
    last: &Finished,
) -> Result<FinalLog, Problem> {
    let sha256 = format!("sha256:{}", last.log_sha256.trim_start_matches("sha256:"));
    let sha256 = sha256.parse().map_err(|error| {
        Problem::new(Code::Invalid, format!("cannot parse log_sha256: {error}"))
    })?;
    let (length_bytes, omitted_bytes) = (last.log_len, last.omitted);
    Ok(match app.logs.compare(execution, length_bytes, &sha256).await? {
        Comparison::Incomplete(have) => FinalLog::Incomplete(have),
        Comparison::Mismatch => FinalLog::Mismatch,
        Comparison::Complete => {
            let complete = true;
            FinalLog::Ready(FinalizedLog {
                execution,
                length_bytes,
                sha256,
                omitted_bytes,
                complete,
            })
        }
    })
}

/// Returns the log of a refused job as complete if the log is empty, as for most refused jobs.
async fn refused_log(app: &App, execution: ExecutionId) -> Result<Option<FinalLog>, Problem> {
    let (length_bytes, sha256) = app.logs.measure(execution).await?;
    let log = FinalizedLog { execution, length_bytes, sha256, omitted_bytes: 0, complete: true };
    Ok((length_bytes == 0).then_some(FinalLog::Ready(log)))
}

/// Completes the log after the final report is committed. Returns the number of stored bytes if
/// bytes are missing.
pub(super) async fn complete_log(
    app: &App,
    job: JobId,
    execution: ExecutionId,
    final_log: FinalLog,
) -> Result<Option<u64>, Problem> {
    match final_log {
        FinalLog::Ready(_) => {
            app.logs.forget(execution);
            Ok(None)
        }
        // The log is already finalized, as incomplete or with other bytes, and cannot change any
        // more.
        FinalLog::Incomplete(_) | FinalLog::Mismatch
            if is_finalized(app, job, execution).await? =>
        {
            Ok(None)
        }
        FinalLog::Incomplete(have) => Ok(Some(have)),
        FinalLog::Mismatch => {
            app.logs.rewind(execution).await?;
            let detail = "cannot finalize the log: the stored bytes do not have the announced digest; send the log again from offset 0";
            Err(Problem::new(Code::LogMismatch, detail).with("committed_bytes", 0))
        }
    }
}

async fn is_finalized(app: &App, job: JobId, execution: ExecutionId) -> Result<bool, Problem> {
    let loaded = app.engine.log().reload::<Job>(&job.to_string()).await?.state;
    Ok(loaded.logs.iter().any(|log| log.execution == execution))
}
