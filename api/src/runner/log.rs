//! Log chunks of an execution: stored at their offset, and acknowledged when durable.
use axum::{
    Json,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use domain::ids::{ExecutionId, JobId};
use schemas::runner::{
    JOB_STATE, LEASE_MS, LOG_INTERVAL_MS, LogResponse, LogSettings, REPR_DIGEST,
};
use sha2::{Digest as _, Sha256};

use super::{anomalies, caller, execution, reconnect};
use crate::{
    dispatch::CallKind,
    extract::{self, RunnerCaller},
    logs::{Coding, ContentRange, HeaderError, LogError, decode, repr_digest},
    problem::{Code, Problem},
    state::App,
};

/// Interval between chunks while the log has readers.
const INTERVAL_WITH_READERS_MS: u64 = 250;

/// Append a chunk to a log.
#[utoipa::path(patch, path = "/runner/v1/jobs/{job}/log", tag = "work",
    params(("job" = String, Path), ("Execution" = String, Header),
        ("Content-Range" = String, Header), ("Repr-Digest" = String, Header)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 202, body = LogResponse), (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn append(
    State(app): State<App>,
    runner: RunnerCaller,
    extract::Path(job): extract::Path<JobId>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    caller::allow(&app, &runner, CallKind::Log)?;
    let execution = execution::execution_header(&headers)?;
    let allowed = execution::check_may_log(&app, &runner, job, execution).await;
    anomalies::record_forgery(&app, &runner, (job, execution), allowed).await?;
    let (start, bytes) = chunk(&headers, body.map_err(too_long)?)?;
    let touched = app.dispatch.record_execution_contact(runner.id, job, execution);
    reconnect::record_contact(&app, &runner, touched, None).await;
    let have = match app.logs.append(execution, start, bytes).await {
        Err(LogError::Divergence) => {
            anomalies::record_divergence(&app, &runner, (job, execution), start).await?;
            return Err(LogError::Divergence.into());
        }
        appended => appended?,
    };
    app.dispatch.log_grew(job, execution, have);
    Ok(log_response(&app, job, execution, have))
}

/// Returns the offset and bytes of a chunk, if they arrived intact.
fn chunk(headers: &HeaderMap, body: Bytes) -> Result<(u64, Bytes), Problem> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let range = text(header::CONTENT_RANGE).unwrap_or_default();
    let ContentRange(range) = range.parse().map_err(|error: HeaderError| Problem::from(error))?;
    let coding = text(header::CONTENT_ENCODING);
    let coding = Coding::of(coding).ok_or_else(|| {
        Problem::new(
            Code::UnsupportedMediaType,
            "cannot store the chunk: unsupported content encoding; send chunks uncompressed, as zstd or as gzip",
        )
    })?;
    let bytes = decode(coding, body)
        .map_err(|error| {
            Problem::new(Code::BadRequest, format!("cannot decompress the chunk: {error}"))
        })?
        .ok_or_else(|| {
            Problem::new(
                Code::TooLarge,
                "cannot store the chunk: it is larger than 256 KiB; send smaller chunks",
            )
        })?;
    if bytes.len() as u64 != range.end - range.start {
        let detail = format!(
            "cannot store the chunk: it has {} bytes, but Content-Range has {}; send matching values",
            bytes.len(),
            range.end - range.start
        );
        return Err(Problem::new(Code::BadRequest, detail));
    }
    let digest = repr_digest(text(HeaderName::from_static(REPR_DIGEST)).unwrap_or_default())?;
    if Sha256::digest(&bytes).as_slice() != digest {
        let detail =
            "cannot store the chunk: its bytes do not match Repr-Digest; send the chunk again";
        return Err(Problem::new(Code::BadRequest, detail));
    }
    Ok((range.start, bytes))
}

fn log_response(app: &App, job: JobId, execution: ExecutionId, have: u64) -> Response {
    let interval_ms = match app.logs.has_readers(execution) {
        true => INTERVAL_WITH_READERS_MS,
        false => LogSettings::default().interval_ms,
    };
    let lease_ms = app.dispatch.timing().lease.as_millis();
    let headers = [
        (header::RANGE, format!("bytes=0-{}", have.saturating_sub(1))),
        (HeaderName::from_static(JOB_STATE), app.dispatch.state_of(job).to_string()),
        (HeaderName::from_static(LEASE_MS), lease_ms.to_string()),
        (HeaderName::from_static(LOG_INTERVAL_MS), interval_ms.to_string()),
    ];
    let cancel = app.dispatch.pending_cancel(job, execution);
    (StatusCode::ACCEPTED, headers, Json(LogResponse { committed_bytes: have, cancel }))
        .into_response()
}

fn too_long(rejection: BytesRejection) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        Problem::new(
            Code::TooLarge,
            "cannot store the chunk: it is larger than 256 KiB; send smaller chunks",
        )
    } else {
        Problem::new(
            Code::BadRequest,
            "cannot store the chunk: the request body is incomplete; send the chunk again",
        )
    }
}
