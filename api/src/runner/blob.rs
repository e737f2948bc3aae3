//! Bytes that a report names by digest, because they are too long for an event.
use axum::{
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::{HeaderMap, StatusCode},
};
use domain::digest::Digest;
use event_log::{
    blob,
    upload::{self, Limit, NotStored, Quota, Uploader},
};

use super::{caller, execution};
use crate::{
    auth::Runner,
    dispatch::Calls,
    extract,
    problem::{Code, Problem},
    state::App,
};

/// The longest blob of a report.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Keep bytes of an execution under their digest. Keeping them twice is keeping them once.
#[utoipa::path(put, path = "/runner/v1/blobs/{sha256}", tag = "work",
    params(("sha256" = String, Path), ("Execution" = String, Header)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 204), (status = "4XX", body = schemas::problem::Problem)))]
pub async fn put(
    State(app): State<App>,
    runner: Runner,
    extract::Path(sha256): extract::Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<StatusCode, Problem> {
    caller::allow(&app, &runner, Calls::Report)?;
    let execution = execution::named(&headers)?;
    execution::at_work(&app, &runner, execution).await?;
    let named = format!("sha256:{}", sha256.trim_start_matches("sha256:"));
    let named: Digest =
        named.parse().map_err(|error| Problem::new(Code::BadRequest, format!("{error}")))?;
    let bytes = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(Code::TooLarge, "a blob has at most 8 MiB"),
        _ => Problem::new(Code::BadRequest, "the body ended early"),
    })?;
    if blob::digest(&bytes).map_err(Problem::internal)? != named {
        return Err(Problem::new(Code::Invalid, "the bytes are not what their digest says"));
    }
    let (execution, id) = (execution.to_string(), runner.id.to_string());
    let (by, quota) = (Uploader { execution: &execution, runner: &id }, app.config.uploads);
    match upload::put(&app.pool, app.log().clock(), by, &bytes, quota).await? {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(NotStored::Exceeds(limit)) => Err(over(&app, limit, quota)),
        Err(NotStored::Erased) => {
            Err(Problem::new(Code::FencedOut, "the data of this execution was erased"))
        }
    }
}

fn over(app: &App, limit: Limit, quota: Quota) -> Problem {
    let (name, most, of) = match limit {
        Limit::Execution => ("execution", quota.execution, "one execution"),
        Limit::Runner => ("runner", quota.runner, "one runner within 24 hours"),
    };
    app.metrics.count("stead_uploads_refused_total", &[("limit", name)]);
    let option = format!("--max-{name}-upload");
    let detail = format!(
        "cannot store the blob: {of} may upload {most} bytes; the server's operator sets {option}"
    );
    Problem::new(Code::UploadQuota, detail).with("limit", name).with("limit_bytes", most)
}
