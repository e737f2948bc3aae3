//! OCI client of the registry on the server's Runner listener.

use std::time::Duration;

use domain::digest::Digest;
use oci_layout::{
    ArtifactManifest, Blob, EMPTY, Layout, LayoutError, MANIFEST_LIMIT, image::MediaType, sha256,
};
use rand::Rng;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url, header};
use tokio::time::timeout;
use tokio_util::io::ReaderStream;

use super::{ArtifactError, Context};
use crate::{host, plugins::Registry};

/// Largest size of an artifact in bytes. The files of a larger one would exceed the limits of
/// `unpack`.
const MAX_BYTES: u64 = 5 << 29;
/// Number of retries after a response with a wrong digest.
const WRONG_RETRIES: u32 = 3;
/// Maximum initial back-off after a transient failure.
const BACKOFF: Duration = Duration::from_millis(200);
/// Longest wait between two attempts.
const BACKOFF_CAP: Duration = Duration::from_secs(30);
/// Assumed minimum upload rate, in bytes per second, for the timeout of a push.
const SLOWEST: u64 = 64 * 1024;

/// Pulls an artifact with all its blobs into the layout, unless the layout has all of them.
///
/// Retries while the registry is unavailable. The caller must drop this future at the deadline.
///
/// # Errors
/// [`ArtifactError`]: for example a rejection by the registry, a full disk, or repeated responses
/// with a wrong digest.
pub async fn pull(
    registry: &Registry,
    layout: &Layout,
    repository: &str,
    digest: &Digest,
) -> Result<ArtifactManifest, ArtifactError> {
    if layout.complete(digest) {
        return Ok(layout.manifest(digest)?);
    }
    pull_manifest(registry, layout, repository, digest).await?;
    let manifest = layout.manifest(digest)?;
    let size = manifest.blobs().fold(0_u64, |size, blob| size.saturating_add(blob.size));
    if size > MAX_BYTES {
        return Err(ArtifactError::TooLarge { limit: MAX_BYTES, unit: "bytes" });
    }
    for blob in manifest.blobs() {
        match layout.has(&blob.digest) {
            // A cleanup deletes old blobs that no artifact of the index names.
            true => layout.touch(&blob.digest, host::system_time()),
            false => pull_blob(registry, layout, repository, &blob.digest, blob.size).await?,
        }
    }
    layout.add_to_index(repository, digest)?;
    Ok(manifest)
}

/// Pulls one image manifest or index into the layout, without the blobs that it names.
///
/// # Errors
/// The errors of [`pull`].
pub async fn pull_manifest(
    registry: &Registry,
    layout: &Layout,
    repository: &str,
    digest: &Digest,
) -> Result<(), ArtifactError> {
    let from = format!("{repository}/manifests/{digest}");
    fetch(registry, layout, &from, digest, MANIFEST_LIMIT).await
}

/// Pulls one blob of at most `limit` bytes into the layout.
///
/// # Errors
/// The errors of [`pull`].
pub async fn pull_blob(
    registry: &Registry,
    layout: &Layout,
    repository: &str,
    digest: &Digest,
    limit: u64,
) -> Result<(), ArtifactError> {
    fetch(registry, layout, &format!("{repository}/blobs/{digest}"), digest, limit).await
}

/// Pushes an artifact, whose layers are in the layout. Returns the digest of the
/// manifest and the total bytes of manifest, config and layer.
///
/// # Errors
/// [`ArtifactError`]: for example a rejection by the registry, or a corrupt layer.
pub async fn push(
    registry: &Registry,
    layout: &Layout,
    repository: &str,
    manifest: &ArtifactManifest,
) -> Result<(Digest, u64), ArtifactError> {
    layout.put(EMPTY)?;
    for blob in manifest.blobs() {
        push_blob(registry, layout, repository, blob).await?;
    }
    let bytes = manifest.to_bytes().map_err(std::io::Error::other);
    let bytes = bytes.context(|| "cannot serialize the image manifest".into())?;
    let digest = sha256(&bytes);
    let path = format!("{repository}/manifests/{digest}");
    let response =
        send_until_answered(registry, &format!("PUT {path}"), registry.idle_timeout, || {
            let put = request(registry, Method::PUT, &path);
            let media_type = MediaType::ImageManifest.as_ref();
            Ok(put.header(header::CONTENT_TYPE, media_type).body(bytes.clone()))
        })
        .await?;
    require_success(&format!("PUT {path}"), response).await?;
    let size = bytes.len() as u64 + manifest.blobs().map(|blob| blob.size).sum::<u64>();
    Ok((digest, size))
}

async fn push_blob(
    registry: &Registry,
    layout: &Layout,
    repository: &str,
    blob: &Blob,
) -> Result<(), ArtifactError> {
    let digest = &blob.digest;
    let path = format!("{repository}/blobs/{digest}");
    let what = format!("HEAD {path}");
    let time_limit = registry.idle_timeout;
    let existing = send_until_answered(registry, &what, time_limit, || {
        Ok(request(registry, Method::HEAD, &path))
    })
    .await?;
    if existing.status().is_success() {
        return Ok(());
    }
    let start = format!("{repository}/blobs/uploads/");
    let started = send_until_answered(registry, &format!("POST {start}"), time_limit, || {
        Ok(request(registry, Method::POST, &start).header(header::CONTENT_LENGTH, 0))
    })
    .await?;
    let started = require_success(&format!("POST {start}"), started).await?;
    let upload = upload_url(registry, &started, digest).ok_or_else(|| ArtifactError::Registry {
        request: format!(
            "POST {start} (the response has no Location header with the registry's own origin)"
        ),
        status: started.status().as_u16(),
        detail: String::new(),
    })?;
    let what = format!("PUT {path}");
    let time_limit = time_limit + Duration::from_secs(blob.size / SLOWEST);
    let response = send_until_answered(registry, &what, time_limit, || {
        let file = layout.verified(digest)?;
        let length = file.metadata().map(|meta| meta.len());
        let length = length.context(|| format!("cannot read the blob {digest}"))?;
        let body = reqwest::Body::wrap_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
        Ok(registry
            .http
            .put(upload.clone())
            .bearer_auth(&registry.token)
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(header::CONTENT_LENGTH, length)
            .body(body))
    })
    .await?;
    require_success(&what, response).await.map(drop)
}

/// Returns the upload URL from the `Location` header. Returns `None` if the header is absent,
/// invalid or names another origin: the upload would send the job token there.
fn upload_url(registry: &Registry, started: &Response, digest: &Digest) -> Option<Url> {
    let base = Url::parse(&registry.base_url).ok()?;
    let location = started.headers().get(header::LOCATION)?.to_str().ok()?;
    let mut url = base.join(location).ok()?;
    url.query_pairs_mut().append_pair("digest", &digest.to_string());
    (url.origin() == base.origin()).then_some(url)
}

async fn fetch(
    registry: &Registry,
    layout: &Layout,
    path: &str,
    digest: &Digest,
    limit: u64,
) -> Result<(), ArtifactError> {
    let what = format!("GET {path}");
    let mut wait = BACKOFF;
    let mut wrong = 0;
    loop {
        let get = || Ok(request(registry, Method::GET, path));
        let response = send_until_answered(registry, &what, registry.idle_timeout, get).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Err(ArtifactError::Missing { digest: digest.clone() });
        }
        let mut response = require_success(&what, response).await?;
        match receive(&mut response, registry.idle_timeout, layout, (digest, limit)).await {
            Ok(Some(())) => return Ok(()),
            // The connection broke or was idle: repeat the request after a pause.
            Ok(None) => {}
            // A proxy may have responded with status 200 and its own page. A retry may reach the
            // registry.
            Err(ArtifactError::Layout(LayoutError::WrongDigest { .. }))
                if wrong < WRONG_RETRIES =>
            {
                wrong += 1
            }
            Err(other) => return Err(other),
        }
        pause(&mut wait).await;
    }
}

/// Receives a blob. Returns `None` if the connection broke or was idle for too long.
async fn receive(
    response: &mut Response,
    idle_timeout: Duration,
    layout: &Layout,
    (digest, limit): (&Digest, u64),
) -> Result<Option<()>, ArtifactError> {
    let mut writer = layout.writer(limit)?;
    loop {
        let Ok(chunk) = timeout(idle_timeout, response.chunk()).await else { return Ok(None) };
        match chunk {
            Ok(Some(bytes)) => writer.append(&bytes)?,
            Ok(None) => {
                writer.finish(Some(digest))?;
                return Ok(Some(()));
            }
            Err(_) => return Ok(None),
        }
    }
}

fn request(registry: &Registry, method: Method, path: &str) -> RequestBuilder {
    let url = format!("{}/v2/{path}", registry.base_url);
    registry.http.request(method, url).bearer_auth(&registry.token).header(
        header::ACCEPT,
        format!(
            "{}, {}, application/octet-stream;q=0.9",
            MediaType::ImageManifest,
            MediaType::ImageIndex
        ),
    )
}

/// Sends a request until a response is not transient. Repeats the request after a timeout and after
/// a lost connection, and reports each cause once.
async fn send_until_answered(
    registry: &Registry,
    what: &str,
    time_limit: Duration,
    build: impl Fn() -> Result<RequestBuilder, ArtifactError>,
) -> Result<Response, ArtifactError> {
    let mut wait = BACKOFF;
    let mut observed = String::new();
    loop {
        let cause = match timeout(time_limit, build()?.send()).await {
            Ok(Ok(response)) if !is_transient(&response) => return Ok(response),
            Ok(Err(source)) if source.is_builder() => {
                return Err(ArtifactError::Unreachable { request: what.into(), source });
            }
            Ok(Ok(response)) => {
                let status = response.status().as_u16();
                let detail = problem_text(response).await;
                let request = what.to_owned();
                ArtifactError::Registry { request, status, detail }.to_string()
            }
            Ok(Err(_)) | Err(_) => format!("cannot complete {what}: the server does not respond"),
        };
        if let Some(observer) = &registry.observer
            && observed != cause
        {
            observer(&cause);
            observed = cause;
        }
        pause(&mut wait).await;
    }
}

/// Returns true if the request must be repeated. The registry's own errors are JSON, so an HTML
/// error comes from a proxy.
fn is_transient(response: &Response) -> bool {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    status.is_server_error()
        || matches!(status.as_u16(), 408 | 425 | 429)
        || (!status.is_success() && kind.is_some_and(|kind| kind.starts_with("text/html")))
}

async fn pause(wait: &mut Duration) {
    let jitter = rand::thread_rng().gen_range(0.1..1.0);
    tokio::time::sleep(wait.mul_f64(jitter)).await;
    *wait = (*wait * 2).min(BACKOFF_CAP);
}

async fn require_success(request: &str, response: Response) -> Result<Response, ArtifactError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let detail = problem_text(response).await;
    Err(ArtifactError::Registry { request: request.into(), status: status.as_u16(), detail })
}

/// Returns the error message of the server with a separator, or nothing.
async fn problem_text(mut response: Response) -> String {
    let text = oci_registry::problem_text(&mut response).await;
    text.map(|text| format!(": {text}")).unwrap_or_default()
}
