//! Downloads from the registry.
use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderName, Method, header},
    response::{IntoResponse, Response},
};
use domain::digest::Digest;
use oci_layout::{Blob, PlatformIndex, image::MediaType};
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;

use super::{
    permit::{Permit, not_found},
    problem::RegistryProblem,
};
use crate::{extract::Path, problem::Problem, registry::Repository, state::App};

pub(super) const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// Confirms that this is a registry and that the token is valid.
pub(super) async fn base(_: Permit) -> Json<Value> {
    Json(json!({}))
}

/// Returns an image manifest that the job's manifest references, or the index of its plugin. HEAD
/// also finds manifests in the repository to which a build job may push.
pub(super) async fn manifest(
    State(app): State<App>,
    permit: Permit,
    method: Method,
    Path((name, component, reference)): Path<(String, String, String)>,
) -> Result<Response, RegistryProblem> {
    let (repository, digest) = parse_path(&name, &component, &reference)?;
    let plugin = plugin_of(&app, &permit, &repository).await?;
    if plugin.as_ref().is_some_and(|plugin| plugin.digest == digest) {
        return send(&app, &repository, &digest, MediaType::ImageIndex.as_ref()).await;
    }
    let named = permit.images(&repository).any(|known| *known == digest)
        || plugin.is_some_and(|plugin| plugin.index.lists(&digest));
    let pushed = method == Method::HEAD && permit.pushes_to(&repository);
    if !named && !pushed {
        return Err(not_found(format!("manifest {digest} in {repository}")).into());
    }
    send(&app, &repository, &digest, MediaType::ImageManifest.as_ref()).await
}

/// Returns a blob that one of the job's image manifests or its plugin references, or the source of
/// the build.
/// HEAD also finds blobs in the repository to which a build job may push.
pub(super) async fn blob(
    State(app): State<App>,
    permit: Permit,
    method: Method,
    Path((name, component, reference)): Path<(String, String, String)>,
) -> Result<Response, RegistryProblem> {
    let (repository, digest) = parse_path(&name, &component, &reference)?;
    // A layer can have the digest of the build's source, which is not in the registry. HEAD must
    // report only blobs of the registry. Otherwise the client would never push the layer.
    if method != Method::HEAD && permit.is_source(&repository, &digest) {
        return source(&app, &digest).await;
    }
    // A client checks for existing blobs before it pushes.
    let mut named = method == Method::HEAD && permit.pushes_to(&repository);
    for image in permit.images(&repository) {
        let artifact = app.registry.manifest(&repository, image).await?;
        named |= artifact.is_some_and(|artifact| artifact.blobs().any(|b| b.digest == digest));
    }
    for (_, manifest) in
        plugin_of(&app, &permit, &repository).await?.iter().flat_map(Plugin::manifests)
    {
        let artifact = app.registry.manifest(&repository, &manifest.digest).await?;
        named |= artifact.is_some_and(|artifact| artifact.blobs().any(|b| b.digest == digest));
    }
    if !named {
        return Err(not_found(format!("blob {digest} in {repository}")).into());
    }
    send(&app, &repository, &digest, "application/octet-stream").await
}

/// Plugin that the job may pull: its index, the manifests of the index, and their blobs.
struct Plugin {
    digest: Digest,
    index: PlatformIndex,
}

impl Plugin {
    fn manifests(&self) -> &[(String, Blob)] {
        self.index.manifests()
    }
}

/// Returns the plugin of the job, if it is in this repository.
async fn plugin_of(
    app: &App,
    permit: &Permit,
    repository: &Repository,
) -> Result<Option<Plugin>, RegistryProblem> {
    let Some(digest) = permit.plugin(repository) else { return Ok(None) };
    let index = app.registry.platform_index(repository, digest).await?;
    Ok(index.map(|index| Plugin { digest: digest.clone(), index }))
}

async fn source(app: &App, digest: &Digest) -> Result<Response, RegistryProblem> {
    let bytes = event_log::blob::get(&app.pool, digest).await.map_err(Problem::from)?;
    let bytes = bytes.ok_or_else(|| not_found(format!("source {digest}")))?;
    let kind = (header::CONTENT_TYPE, "application/x-tar".to_string());
    Ok(([kind, (CONTENT_DIGEST, digest.to_string())], bytes).into_response())
}

async fn send(
    app: &App,
    repository: &Repository,
    digest: &Digest,
    kind: &str,
) -> Result<Response, RegistryProblem> {
    let found = app.registry.read(repository, digest).await?;
    let (file, length) =
        found.ok_or_else(|| not_found(format!("blob {digest} in {repository}")))?;
    let headers = [
        (header::CONTENT_TYPE, kind.to_string()),
        (header::CONTENT_LENGTH, length.to_string()),
        (CONTENT_DIGEST, digest.to_string()),
    ];
    let body = Body::from_stream(ReaderStream::with_capacity(file, 64 * 1024));
    Ok((headers, body).into_response())
}

/// Parses a path of the registry. There are no tags: a reference is always a digest.
pub(super) fn parse_path(
    name: &str,
    component: &str,
    reference: &str,
) -> Result<(Repository, Digest), Problem> {
    let named = format!("{name}/{component}");
    let repository = named.parse().map_err(|_| not_found(&named))?;
    let digest = reference.parse().map_err(|_| not_found(reference))?;
    Ok((repository, digest))
}
