//! Into the registry: whole blobs, then the manifest that names them.
use axum::{
    body::Body,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use domain::digest::Digest;
use serde::Deserialize;
use ulid::Ulid;

use super::{
    Repository,
    answer::Refusal,
    layout,
    permit::{Permit, nothing},
    pull::{CONTENT_DIGEST, place},
};
use crate::{
    extract::{Path, Query},
    problem::{Code, Problem},
    state::App,
};

/// A manifest is a page, not a book.
const MANIFEST_BYTES: usize = 4 * 1024 * 1024;

/// Which blob is sent.
#[derive(Deserialize)]
pub(super) struct Upload {
    digest: Option<String>,
}

/// Where to send a blob; or, with its digest, the blob itself.
pub(super) async fn begin(
    State(app): State<App>,
    permit: Permit,
    Path((name, component)): Path<(String, String)>,
    Query(upload): Query<Upload>,
    body: Body,
) -> Result<Response, Refusal> {
    let repository = permit.own(repository(&name, &component)?)?;
    if upload.digest.is_some() {
        return receive(&app, &repository, &upload, body).await;
    }
    let location = format!("/v2/{repository}/blobs/uploads/{}", Ulid::new());
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)]).into_response())
}

/// The blob, in one body. The id in the path is only a name: there is nothing to resume.
pub(super) async fn finish(
    State(app): State<App>,
    permit: Permit,
    Path((name, component, _)): Path<(String, String, String)>,
    Query(upload): Query<Upload>,
    body: Body,
) -> Result<Response, Refusal> {
    let repository = permit.own(repository(&name, &component)?)?;
    receive(&app, &repository, &upload, body).await
}

/// The manifest of an artifact whose blobs are all here.
pub(super) async fn manifest(
    State(app): State<App>,
    permit: Permit,
    Path((name, component, reference)): Path<(String, String, String)>,
    body: Body,
) -> Result<Response, Refusal> {
    let (repository, digest) = place(&name, &component, &reference)?;
    let repository = permit.own(repository)?;
    let bytes = axum::body::to_bytes(body, MANIFEST_BYTES).await.map_err(|_| {
        let detail = format!("a manifest may have at most {MANIFEST_BYTES} bytes");
        Problem::new(Code::TooLarge, detail)
    })?;
    let image = layout::image(&bytes)?;
    for blob in image.blobs() {
        let Some(size) = app.registry.size(&repository, &blob.digest).await else {
            let detail = format!("it names {}, which was not pushed", blob.digest);
            return Err(Problem::new(Code::Invalid, detail).into());
        };
        if size != blob.size {
            let detail = format!("{} has {size} bytes, not {}", blob.digest, blob.size);
            return Err(Problem::new(Code::Invalid, detail).into());
        }
    }
    app.registry.keep(&repository, &digest, Body::from(Bytes::clone(&bytes))).await?;
    app.registry.list(&repository, &digest, &image).await?;
    Ok(created(format!("/v2/{repository}/manifests/{digest}"), &digest))
}

async fn receive(
    app: &App,
    repository: &Repository,
    upload: &Upload,
    body: Body,
) -> Result<Response, Refusal> {
    let digest: Digest = match upload.digest.as_deref().map(str::parse) {
        Some(Ok(digest)) => digest,
        Some(Err(_)) | None => {
            let detail = "say which blob it is: ?digest=sha256:<hex>";
            return Err(Problem::new(Code::DigestMismatch, detail).into());
        }
    };
    app.registry.keep(repository, &digest, body).await?;
    Ok(created(format!("/v2/{repository}/blobs/{digest}"), &digest))
}

fn created(location: String, digest: &Digest) -> Response {
    let headers = [(header::LOCATION, location), (CONTENT_DIGEST, digest.to_string())];
    (StatusCode::CREATED, headers).into_response()
}

fn repository(name: &str, component: &str) -> Result<Repository, Problem> {
    let named = format!("{name}/{component}");
    named.parse().map_err(|_| nothing(named))
}
