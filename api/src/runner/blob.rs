//! Uploads of data that is too long for an event. A report references the data by its digest.
use axum::{
    body::Bytes,
    extract::{DefaultBodyLimit, FromRequest as _, Request, State},
    http::{StatusCode, header::CONTENT_LENGTH},
};
use domain::digest::Digest;
use event_log::{
    blob,
    upload::{self, Limit, NotStored, Quota, RemainingQuota, Uploader},
};

use super::{caller, execution};
use crate::{
    dispatch::CallKind,
    extract::{self, RunnerCaller},
    metrics::UploadLabels,
    problem::{Code, Problem},
    state::App,
};

/// Maximum size in bytes of a blob in a report.
pub(crate) const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Store bytes of an execution under their digest. Idempotent.
#[utoipa::path(put, path = "/runner/v1/blobs/{sha256}", tag = "work",
    params(("sha256" = String, Path), ("Execution" = String, Header)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 204), (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn put(
    State(app): State<App>,
    runner: RunnerCaller,
    extract::Path(sha256): extract::Path<String>,
    request: Request,
) -> Result<StatusCode, Problem> {
    caller::allow(&app, &runner, CallKind::Report)?;
    let execution = execution::execution_header(request.headers())?;
    execution::check_running(&app, &runner, execution).await?;
    let named = format!("sha256:{}", sha256.trim_start_matches("sha256:"));
    let named: Digest =
        named.parse().map_err(|error| Problem::new(Code::BadRequest, format!("{error}")))?;
    let (execution, id) = (execution.to_string(), runner.id.to_string());
    let (by, quota) = (Uploader { execution: &execution, runner: &id }, app.config.uploads);
    let room = upload::remaining_quota(&app.pool, by, &named, quota).await?;
    let bytes = read(&app, request, room, quota).await?;
    if blob::digest(&bytes).map_err(Problem::internal)? != named {
        return Err(Problem::new(
            Code::Invalid,
            "cannot store the blob: its bytes do not match the digest in the path; send the bytes of that digest",
        ));
    }
    match upload::put(&app.pool, app.log().clock(), by, &bytes, quota).await? {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(NotStored::Exceeds(limit)) => Err(quota_problem(&app, limit, quota)),
        Err(NotStored::Erased) => Err(Problem::new(
            Code::Fenced,
            "cannot store the blob: the data of this execution was erased",
        )),
        Err(NotStored::Busy) => {
            let detail = "cannot store the blob: another upload of this runner is in progress; send the blob again";
            Err(Problem::new(Code::RateLimited, detail).retry_after(1))
        }
    }
}

/// Reads the body if it fits within the quotas. Rejects a larger body before reading it, if its
/// `Content-Length` is known.
async fn read(
    app: &App,
    mut request: Request,
    room: RemainingQuota,
    quota: Quota,
) -> Result<Bytes, Problem> {
    let too_large = || {
        Problem::new(
            Code::TooLarge,
            "cannot store the blob: it is larger than 8 MiB; send a smaller blob",
        )
    };
    let length = request.headers().get(CONTENT_LENGTH);
    let length: Option<u64> = length.and_then(|value| value.to_str().ok()?.parse().ok());
    if length.is_some_and(|length| length > MAX_BYTES as u64) {
        return Err(too_large());
    }
    if let RemainingQuota::Left { bytes, limit } = room {
        if upload::charge(length.unwrap_or(0)) > bytes {
            return Err(quota_problem(app, limit, quota));
        }
        let most = usize::try_from(bytes).unwrap_or(MAX_BYTES).min(MAX_BYTES);
        DefaultBodyLimit::max(most).apply(&mut request);
    }
    let bytes = Bytes::from_request(request, app).await;
    bytes.map_err(|rejection| match (rejection.status(), room) {
        (StatusCode::PAYLOAD_TOO_LARGE, RemainingQuota::Left { bytes, limit })
            if bytes < MAX_BYTES as u64 =>
        {
            quota_problem(app, limit, quota)
        }
        (StatusCode::PAYLOAD_TOO_LARGE, _) => too_large(),
        _ => Problem::new(
            Code::BadRequest,
            "cannot store the blob: the request body is incomplete; send the blob again",
        ),
    })
}

fn quota_problem(app: &App, limit: Limit, quota: Quota) -> Problem {
    let (name, most, of) = match limit {
        Limit::Execution => ("execution", quota.execution, "an execution"),
        Limit::Runner => ("runner", quota.runner, "a runner within 24 hours"),
    };
    app.metrics.uploads_refused.get_or_create(&UploadLabels { limit: name }).inc();
    let option = format!("--max-{name}-upload");
    let detail = format!(
        "cannot store the blob: the upload limit of {of} is {most} bytes; ask the server's operator to increase {option}"
    );
    Problem::new(Code::UploadQuotaExceeded, detail).with("limit", name).with("limit_bytes", most)
}
