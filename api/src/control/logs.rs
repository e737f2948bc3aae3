//! `/v1/jobs/{job}/attempts/{attempt}/log`: log bytes of an attempt, as a file, a range, or a live
//! stream.
mod range;

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use domain::ids::JobId;
use futures::{Stream, StreamExt as _};
use schemas::control::jobs::{LogQuery, LogRecord};

use crate::{
    extract::{Caller, LastEvent, Path, Query},
    problem::{Code, Problem},
    queries::logs::{self, LogUpdate},
    state::App,
};

/// Interval of keep-alive comments. Proxies close idle connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

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
pub(super) async fn log(
    State(app): State<App>,
    Path(attempt): Path<(JobId, u32)>,
    Query(which): Query<LogQuery>,
    LastEvent(last): LastEvent,
    headers: HeaderMap,
    caller: Caller,
) -> Result<Response, Problem> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if header("accept").is_some_and(|accept| accept.contains("text/event-stream")) {
        let after = last.or(which.since_n).unwrap_or(0);
        let updates = logs::follow(app, caller, attempt, after).await?;
        let keep = KeepAlive::new().interval(KEEP_ALIVE);
        return Ok(Sse::new(events(updates)).keep_alive(keep).into_response());
    }
    let log = logs::get(&app, &caller, attempt).await?;
    let length = log.length;
    let bytes_range = match (header("range"), which.since_n) {
        (None, None) => 0..length,
        (Some(text), None) => range::of(text, length)?,
        (None, Some(n)) => log.offset_after(n).await?..length,
        (Some(_), Some(_)) => {
            let detail = "invalid request: it has a Range header and since_n; send only one";
            return Err(Problem::new(Code::BadRequest, detail));
        }
    };
    let kind = (header::CONTENT_TYPE, "application/x-ndjson".to_owned());
    let size = (header::CONTENT_LENGTH, (bytes_range.end - bytes_range.start).to_string());
    let ranges = (header::ACCEPT_RANGES, "bytes".to_owned());
    let body = Body::from_stream(log.bytes(bytes_range.clone()));
    if header("range").is_none() {
        return Ok(([kind, size, ranges], body).into_response());
    }
    let last = bytes_range.end.saturating_sub(1);
    let range = format!("bytes {}-{last}/{length}", bytes_range.start);
    let headers = [kind, size, ranges, (header::CONTENT_RANGE, range)];
    Ok((StatusCode::PARTIAL_CONTENT, headers, body).into_response())
}

/// Converts the updates of a log to server-sent events.
fn events(
    updates: impl Stream<Item = Result<LogUpdate, Problem>>,
) -> impl Stream<Item = Result<Event, Infallible>> {
    updates.map(|update| {
        Ok(match update {
            Ok(LogUpdate::Record(n, line)) => {
                let text = String::from_utf8_lossy(&line).into_owned();
                Event::default().id(n.to_string()).event("record").data(text)
            }
            Ok(LogUpdate::Finalized) => Event::default().event("end").data("finalized"),
            Err(problem) => Event::default().event("end").data(problem.code.as_str()),
        })
    })
}
