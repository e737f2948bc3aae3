//! Uploads to the registry: complete blobs, then the manifest that names them.
use axum::{
    body::Body,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use domain::digest::Digest;
use oci_layout::{Document, MANIFEST_LIMIT};
use serde::Deserialize;

use super::{
    permit::{Permit, not_found},
    problem::RegistryProblem,
    pull::{CONTENT_DIGEST, parse_path},
};
use crate::{
    extract::{Path, Query},
    ids,
    problem::{Code, Problem},
    registry::{ArtifactError, Repository},
    state::App,
};

/// Query parameters of an upload.
#[derive(Deserialize)]
pub(super) struct Upload {
    digest: Option<String>,
}

/// Returns the upload URL of a blob, or stores the blob if the request has its digest.
pub(super) async fn begin(
    State(app): State<App>,
    permit: Permit,
    Path((name, component)): Path<(String, String)>,
    Query(upload): Query<Upload>,
    body: Body,
) -> Result<Response, RegistryProblem> {
    let repository = permit.check_push(repository(&name, &component)?)?;
    if upload.digest.is_some() {
        return receive(&app, &repository, &upload, body).await;
    }
    let location = format!("/v2/{repository}/blobs/uploads/{}", ids::new_ulid());
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)]).into_response())
}

/// Stores a blob that was sent in one body. Uploads cannot be resumed, so the id in the path has no
/// meaning.
pub(super) async fn finish(
    State(app): State<App>,
    permit: Permit,
    Path((name, component, _)): Path<(String, String, String)>,
    Query(upload): Query<Upload>,
    body: Body,
) -> Result<Response, RegistryProblem> {
    let repository = permit.check_push(repository(&name, &component)?)?;
    receive(&app, &repository, &upload, body).await
}

/// Stores the manifest of an artifact whose blobs are all stored, or an index of stored manifests.
pub(super) async fn manifest(
    State(app): State<App>,
    permit: Permit,
    Path((name, component, reference)): Path<(String, String, String)>,
    body: Body,
) -> Result<Response, RegistryProblem> {
    let (repository, digest) = parse_path(&name, &component, &reference)?;
    let repository = permit.check_push(repository)?;
    let limit = usize::try_from(MANIFEST_LIMIT).unwrap_or(usize::MAX);
    let bytes = axum::body::to_bytes(body, limit).await.map_err(|_| {
        let detail = format!("cannot read the manifest: it is incomplete or larger than {limit} bytes; send a complete manifest within the limit");
        Problem::new(Code::TooLarge, detail)
    })?;
    let document = Document::parse(&bytes).map_err(ArtifactError::from)?;
    for blob in document.blobs() {
        // The retention must not delete an existing blob before the manifest names it.
        let size = app.registry.renew_blob(&repository, &blob.digest, app.now()).await?;
        let Some(size) = size else {
            let detail = format!(
                "cannot store the manifest: its blob {} was not pushed; push it first",
                blob.digest
            );
            return Err(Problem::new(Code::Invalid, detail).into());
        };
        if size != blob.size {
            let detail = format!(
                "cannot store the manifest: blob {} has {size} bytes, but the manifest states {}; push a manifest with the actual size",
                blob.digest, blob.size
            );
            return Err(Problem::new(Code::Invalid, detail).into());
        }
    }
    if let Document::List(list) = &document {
        for image in list.images() {
            // A nested index or another blob cannot be read as a manifest.
            app.registry.manifest(&repository, &image.blob.digest).await?;
        }
    }
    app.registry.store(&repository, &digest, Body::from(Bytes::clone(&bytes))).await?;
    app.registry.add_to_index(&repository, &digest).await?;
    Ok(created(format!("/v2/{repository}/manifests/{digest}"), &digest))
}

async fn receive(
    app: &App,
    repository: &Repository,
    upload: &Upload,
    body: Body,
) -> Result<Response, RegistryProblem> {
    let digest: Digest = match upload.digest.as_deref().map(str::parse) {
        Some(Ok(digest)) => digest,
        Some(Err(_)) | None => {
            let detail = "cannot store the blob: the parameter `digest` is missing or invalid; send ?digest=sha256:<hex>";
            return Err(Problem::new(Code::DigestMismatch, detail).into());
        }
    };
    app.registry.store(repository, &digest, body).await?;
    Ok(created(format!("/v2/{repository}/blobs/{digest}"), &digest))
}

fn created(location: String, digest: &Digest) -> Response {
    let headers = [(header::LOCATION, location), (CONTENT_DIGEST, digest.to_string())];
    (StatusCode::CREATED, headers).into_response()
}

fn repository(name: &str, component: &str) -> Result<Repository, Problem> {
    let named = format!("{name}/{component}");
    named.parse().map_err(|_| not_found(named))
}
