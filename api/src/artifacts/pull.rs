//! Downloads from the registry.
use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use domain::digest::Digest;
use oci_layout::{Blob, Document, ImageList, PlatformIndex, image::MediaType};
use serde_json::{Value, json};

use super::{
    permit::{Permit, not_found},
    problem::RegistryProblem,
};
use crate::{
    extract::Path,
    problem::Problem,
    registry::{FoundBlob, Repository, Wanted},
    state::App,
};

/// Media type of a blob.
const OCTETS: &str = "application/octet-stream";
pub(super) const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// Confirms that this is a registry and that the token is valid.
pub(super) async fn base(_: Permit) -> Json<Value> {
    Json(json!({}))
}

/// Returns an image manifest or an image index that the job's manifest references, a manifest that
/// such an index lists, or the index of its plugin. HEAD also finds manifests in the repository
/// that a build job may push to.
pub(super) async fn manifest(
    State(app): State<App>,
    permit: Permit,
    method: Method,
    Path((name, component, reference)): Path<(String, String, String)>,
) -> Result<Response, RegistryProblem> {
    let (repository, digest) = parse_path(&name, &component, &reference)?;
    let plugin = plugin_of(&app, &permit, &repository).await?;
    if plugin.as_ref().is_some_and(|plugin| plugin.digest == digest) {
        return send(&app, &permit, (&repository, &digest), MediaType::ImageIndex.as_ref()).await;
    }
    let mut named = permit.images(&repository).any(|known| *known == digest)
        || plugin.is_some_and(|plugin| plugin.index.lists(&digest));
    if !named {
        for list in lists(&app, &permit, &repository).await? {
            named |= list.lists(&digest);
        }
    }
    let pushed = method == Method::HEAD && permit.pushes_to(&repository);
    if !named && !pushed {
        return Err(not_found(format!("manifest {digest} in {repository}")).into());
    }
    // A client does not push an existing artifact again.
    if !named && !app.registry.renew_stored(&repository, &digest, app.now()).await? {
        return Err(not_found(format!("manifest {digest} in {repository}")).into());
    }
    // A push to the server must not depend on the registry of the vendor: the server can have got one
    // after the order of the build.
    let document = match named {
        true => app.registry.document(&repository, &digest).await?,
        false => app.registry.stored_document(&repository, &digest).await?,
    };
    let Some(document) = document else {
        return Err(not_found(format!("manifest {digest} in {repository}")).into());
    };
    send(&app, &permit, (&repository, &digest), document.media_type().as_ref()).await
}

/// Returns a blob that one of the job's image manifests or its plugin references, or the source of
/// the build.
/// HEAD also finds blobs in the repository to which a build job may push.
pub(super) async fn blob(
    State(app): State<App>,
    permit: Permit,
    method: Method,
    headers: HeaderMap,
    Path((name, component, reference)): Path<(String, String, String)>,
) -> Result<Response, RegistryProblem> {
    let (repository, digest) = parse_path(&name, &component, &reference)?;
    // A layer can have the digest of the build's source, which is not in the registry. HEAD must
    // report only blobs of the registry. Otherwise the client would never push the layer.
    if method != Method::HEAD && permit.is_source(&repository, &digest) {
        return source(&app, &digest).await;
    }
    let missing = || not_found(format!("blob {digest} in {repository}"));
    // A client checks for existing blobs before it pushes, and does not push them again.
    if method == Method::HEAD && permit.pushes_to(&repository) {
        let length = app.registry.renew_blob(&repository, &digest, app.now()).await?;
        let length = length.ok_or_else(missing)?;
        return respond(&digest, OCTETS, FoundBlob { length, from: 0, body: Body::empty() });
    }
    let listed = lists(&app, &permit, &repository).await?;
    let listed = listed.iter().flat_map(|list| list.images()).map(|image| &image.blob.digest);
    let plugin = plugin_of(&app, &permit, &repository).await?;
    let of_plugin = plugin.iter().flat_map(Plugin::manifests).map(|(_, manifest)| &manifest.digest);
    let mut size = None;
    for manifest in permit.images(&repository).chain(listed).chain(of_plugin) {
        if let Some(Document::Manifest(image)) =
            app.registry.document(&repository, manifest).await?
            && let Some(blob) = image.blobs().find(|blob| blob.digest == digest)
        {
            size = Some(blob.size);
            break;
        }
    }
    let size = size.ok_or_else(missing)?;
    if method == Method::HEAD {
        let length = app.registry.size_of(&repository, &digest, size).await.ok_or_else(missing)?;
        return respond(&digest, OCTETS, FoundBlob { length, from: 0, body: Body::empty() });
    }
    let from = headers.get(header::RANGE).and_then(|range| range.to_str().ok()).and_then(offset);
    let from = from.unwrap_or(0);
    let wanted = Wanted { runner: permit.runner, size: Some(size), from };
    let found = app.registry.read(&repository, &digest, wanted).await?;
    respond(&digest, OCTETS, found.ok_or_else(missing)?)
}

/// Returns the offset of a range `bytes=N-`. Other ranges are ignored, as HTTP allows.
fn offset(range: &str) -> Option<u64> {
    range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

/// Returns the image indexes of this repository that the job may pull.
async fn lists(
    app: &App,
    permit: &Permit,
    repository: &Repository,
) -> Result<Vec<ImageList>, RegistryProblem> {
    let mut lists = vec![];
    for image in permit.images(repository) {
        if let Some(Document::List(list)) = app.registry.document(repository, image).await? {
            lists.push(list);
        }
    }
    Ok(lists)
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

/// Sends a document.
async fn send(
    app: &App,
    permit: &Permit,
    (repository, digest): (&Repository, &Digest),
    kind: &str,
) -> Result<Response, RegistryProblem> {
    let wanted = Wanted { runner: permit.runner, size: None, from: 0 };
    let found = app.registry.read(repository, digest, wanted).await?;
    let missing = || not_found(format!("manifest {digest} in {repository}"));
    respond(digest, kind, found.ok_or_else(missing)?)
}

fn respond(digest: &Digest, kind: &str, found: FoundBlob) -> Result<Response, RegistryProblem> {
    let FoundBlob { length, from, body } = found;
    let mut headers = HeaderMap::new();
    let mut set = |name: HeaderName, value: &str| -> Result<(), RegistryProblem> {
        headers.insert(name, HeaderValue::from_str(value).map_err(Problem::internal)?);
        Ok(())
    };
    set(header::CONTENT_TYPE, kind)?;
    set(CONTENT_DIGEST, &digest.to_string())?;
    set(header::ACCEPT_RANGES, "bytes")?;
    let status = match from {
        0 => StatusCode::OK,
        from => {
            set(header::CONTENT_RANGE, &format!("bytes {from}-{}/{length}", length - 1))?;
            StatusCode::PARTIAL_CONTENT
        }
    };
    set(header::CONTENT_LENGTH, &(length - from).to_string())?;
    Ok((status, headers, body).into_response())
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
