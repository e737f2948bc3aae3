//! Job page with a part of its log, and the download of a log.
use axum::{
    body::Body,
    extract::State,
    http::header,
    response::{IntoResponse as _, Response},
};
use dashboard::pages::{self, LOG_LINES, LogPage};
use domain::ids::JobId;
use schemas::control::jobs::Job;
use serde::Deserialize;

use super::{
    pages::caller_of,
    response::{Page, PageProblem, PageResult, Ui},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Path, Query},
    problem::Problem,
    queries::{
        jobs,
        logs::{self, LogRecords},
        min_position,
    },
    state::App,
};

/// Part of a log.
#[derive(Default, Deserialize)]
pub(super) struct Part {
    /// Attempt. Default: the newest.
    attempt: Option<u32>,
    /// Number of the record before the part. Default: the newest records.
    after: Option<u64>,
}

pub(super) async fn job(
    State(app): State<App>,
    Ui(Path(id)): Ui<Path<JobId>>,
    Ui(Query(part)): Ui<Query<Part>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, None).await?;
    let job = jobs::get(&app, &caller, id).await?;
    let log = part_of(&app, &caller, &job, &part).await?;
    Ok(Page(pages::job(&caller_of(&app, &caller, &session).await?, &job, &log)))
}

/// Returns a part of the log of a job. A job without attempts has an empty one.
pub(super) async fn part_of(
    app: &App,
    caller: &Caller,
    job: &Job,
    part: &Part,
) -> Result<LogPage, Problem> {
    let newest = job.attempts.iter().map(|attempt| attempt.attempt).max().unwrap_or(0);
    let attempt = part.attempt.unwrap_or(newest);
    let LogRecords { records, more } = match (attempt, part.after) {
        (0, _) => LogRecords::default(),
        (1.., None) => logs::get(app, caller, (job.id, attempt)).await?.newest(LOG_LINES).await?,
        (1.., Some(n)) => {
            logs::get(app, caller, (job.id, attempt)).await?.after(n, LOG_LINES).await?
        }
    };
    let is_complete = job.attempts.iter().any(|of| of.attempt == attempt && of.log.is_some());
    let follows =
        part.after.is_none() && attempt == newest && !is_complete && job.ended_at.is_none();
    Ok(LogPage { attempt, records, more, follows })
}

/// Downloads the log of an attempt as NDJSON.
pub(super) async fn download(
    State(app): State<App>,
    Ui(Path((job, attempt))): Ui<Path<(JobId, u32)>>,
    caller: Caller,
) -> Result<Response, PageProblem> {
    let log = logs::get(&app, &caller, (job, attempt)).await?;
    let length = log.length;
    let name = format!("attachment; filename=\"{job}-{attempt}.ndjson\"");
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson".to_owned()),
        (header::CONTENT_DISPOSITION, name),
    ];
    Ok((headers, Body::from_stream(log.bytes(0..length))).into_response())
}
