//! `/v1/jobs/{job}/attempts/{attempt}/log`: log bytes of an attempt, as a file, a range, or a live
//! stream.
mod follow;
mod range;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use domain::ids::{ExecutionId, JobId};
use projections::views::jobs;
use schemas::control::jobs::{LogQuery, LogRecord};

use crate::{
    extract::{Caller, LastEvent, Path, Query},
    problem::{Code, Problem},
    state::App,
};

/// Maximum number of log bytes that a response holds in memory.
const CHUNK: u64 = 1 << 20;

/// Get the log of one attempt
///
/// The response is NDJSON with the whole log, the bytes of a `Range`, or the records after
/// `since_n`. With `Accept: text/event-stream`, the response streams each record as it arrives,
/// then an `end` event. The data of the `end` event is `finalized`, or the problem code if the
/// token is no longer valid. `Last-Event-ID` resumes after a record.
#[utoipa::path(
    get, path = "/v1/jobs/{job}/attempts/{attempt}/log", tag = "jobs",
    params(
        ("job" = String, Path, description = "The job's id"),
        ("attempt" = u32, Path, description = "Number of the attempt, from 1"),
        LogQuery,
        ("Range" = Option<String>, Header, description = "`bytes=0-99`, `bytes=100-`, `bytes=-100`"),
        ("Last-Event-ID" = Option<u64>, Header, description = "Resume after this record"),
    ),
    responses(
        (status = 200, body = LogRecord, content_type = "application/x-ndjson"),
        (status = 206, body = LogRecord, content_type = "application/x-ndjson"),
    ),
)]
pub async fn log(
    State(app): State<App>,
    Path((job, attempt)): Path<(JobId, u32)>,
    Query(which): Query<LogQuery>,
    LastEvent(last): LastEvent,
    headers: HeaderMap,
    who: Caller,
) -> Result<Response, Problem> {
    let execution = execution(&app, job, attempt).await?;
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if header("accept").is_some_and(|accept| accept.contains("text/event-stream")) {
        let after = last.or(which.since_n).unwrap_or(0);
        return follow::follow(app, who, (job, execution), after).await;
    }
    let length = app.logs.length(execution).await?;
    let requested = match (header("range"), which.since_n) {
        (None, None) => None,
        (Some(text), None) => Some(range::of(text, length)?),
        (None, Some(n)) => Some(follow::offset_after(&app, execution, n).await?..length),
        (Some(_), Some(_)) => {
            let detail = "the request has a Range header and since_n; send only one";
            return Err(Problem::new(Code::BadRequest, detail));
        }
    };
    let partial = header("range").is_some();
    let bytes_range = requested.unwrap_or(0..length);
    let kind = (header::CONTENT_TYPE, "application/x-ndjson".to_owned());
    let size = (header::CONTENT_LENGTH, (bytes_range.end - bytes_range.start).to_string());
    let ranges = (header::ACCEPT_RANGES, "bytes".to_owned());
    let body = Body::from_stream(bytes(app, execution, bytes_range.clone()));
    if !partial {
        return Ok(([kind, size, ranges], body).into_response());
    }
    let last = bytes_range.end.saturating_sub(1);
    let range = format!("bytes {}-{last}/{length}", bytes_range.start);
    let headers = [kind, size, ranges, (header::CONTENT_RANGE, range)];
    Ok((StatusCode::PARTIAL_CONTENT, headers, body).into_response())
}

fn bytes(
    app: App,
    execution: ExecutionId,
    range: std::ops::Range<u64>,
) -> impl futures::Stream<Item = std::io::Result<Bytes>> {
    async_stream::try_stream! {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + CHUNK);
            let chunk = app.logs.read(execution, at..end).await.map_err(std::io::Error::other)?;
            if chunk.is_empty() {
                break;
            }
            at += chunk.len() as u64;
            yield chunk;
        }
    }
}

async fn execution(app: &App, job: JobId, attempt: u32) -> Result<ExecutionId, Problem> {
    let row = jobs::job(&app.pool, job).await?.ok_or_else(|| Problem::not_found(job))?;
    let of = row.attempts.iter().rev().find(|of| of.attempt == attempt);
    let missing = || Problem::not_found(format!("attempt {attempt} of {job}"));
    of.map(|of| of.execution).ok_or_else(missing)
}
