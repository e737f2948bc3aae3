//! Bytes that a report names by digest, because they are too long for an event.
use axum::{
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::{HeaderMap, StatusCode},
};
use domain::digest::Digest;
use event_log::blob;

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
    execution::at_work(&app, &runner, execution::named(&headers)?).await?;
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
    match blob::put(&app.pool, &bytes).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(blob::BlobError::Database(error)) => Err(error.into()),
        Err(error @ (blob::BlobError::Damaged(_) | blob::BlobError::Digest(_))) => {
            Err(Problem::internal(error))
        }
    }
}
