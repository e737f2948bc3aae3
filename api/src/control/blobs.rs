//! Blobs by digest: bundles, manifests, plan summaries.
use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use domain::digest::Digest;

use crate::{
    extract::{Caller, Path},
    problem::Problem,
    queries::blobs,
    state::App,
};

/// Get the bytes of a blob
#[utoipa::path(
    get, path = "/v1/blobs/{digest}", tag = "audit",
    params(("digest" = String, Path, description = "`sha256:` and 64 hexadecimal digits")),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream")),
)]
pub(super) async fn blob(
    State(app): State<App>,
    caller: Caller,
    Path(digest): Path<Digest>,
) -> Result<Response, Problem> {
    let bytes = blobs::get(&app, &caller, &digest).await?;
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{digest}\"")) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}
