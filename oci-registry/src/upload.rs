//! Upload of one blob while it is downloaded.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_core::Stream;
use oci_layout::Blob;
use reqwest::{Method, Response, StatusCode, Url, header};
use tokio::sync::mpsc;

use super::{
    Endpoint, Progress, RegistryError, auth::Scope, reader::Reader, response::retry_after,
};

/// Number of chunks between download and upload.
const BUFFERED: usize = 16;
/// Assumed minimum upload rate, in bytes per second, for the timeout of an upload.
const SLOWEST: u64 = 64 * 1024;

/// Outcome of an upload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Uploaded {
    /// The registry has the blob already.
    Present,
    /// The registry took the blob from another of its repositories.
    Mounted,
    Sent,
}

/// Body of a request, whose bytes another task sends.
struct Chunks(mpsc::Receiver<io::Result<Bytes>>);

impl Stream for Chunks {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

/// Uploads a blob, unless the registry has it or can mount it from one of the repositories `from`.
pub(crate) async fn upload(
    endpoint: &Endpoint,
    name: &str,
    from: &[String],
    blob: &Blob,
    reader: &mut Reader<'_>,
    progress: &Progress,
) -> Result<Uploaded, RegistryError> {
    let what = format!("the upload of {}", blob.digest);
    if has(endpoint, name, blob).await? {
        return Ok(Uploaded::Present);
    }
    let mut retry = endpoint.retry();
    // Each attempt sends the whole rest of the blob, so a registry that keeps refusing it, for example
    // because its disk is full, gets a limited number of attempts even if the caller has no limit.
    let mut refusals = endpoint.limited_retry();
    let mut started = match begin(endpoint, name, from, blob).await? {
        Begun::Mounted => return Ok(Uploaded::Mounted),
        Begun::At(url) => url,
    };
    let mut offset = 0;
    loop {
        reader.seek(offset);
        let failed = match send(endpoint, name, &started, (blob, offset), reader, progress).await {
            Ok(response) if response.status().is_success() => return Ok(Uploaded::Sent),
            Ok(response) if !may_repeat(response.status()) => {
                return Err(endpoint.refusal(&what, response).await);
            }
            Ok(response) => {
                let (is_busy, wait) = (is_busy(response.status()), retry_after(&response));
                let refusal = endpoint.refusal(&what, response).await;
                let series = if is_busy { &mut retry } else { &mut refusals };
                series.pause(wait, refusal).await
            }
            // The registry cannot be the cause of an error of the download.
            Err(SendError::Download(error)) => return Err(error),
            Err(SendError::Upload(error)) => retry.pause(None, error).await,
        };
        failed?;
        let reached = match received(endpoint, name, &started).await {
            Some((url, received)) if received <= blob.size => {
                if received > offset {
                    retry.reset();
                    refusals.reset();
                }
                started = url;
                received
            }
            // The registry forgot the upload, or cannot tell its length.
            Some(_) | None => {
                if has(endpoint, name, blob).await? {
                    return Ok(Uploaded::Sent);
                }
                match begin(endpoint, name, &[], blob).await? {
                    Begun::Mounted => return Ok(Uploaded::Mounted),
                    Begun::At(url) => started = url,
                }
                0
            }
        };
        progress.rewind(reader.offset().saturating_sub(reached));
        offset = reached;
    }
}

/// Returns true if the registry accepts the blob later, without a change.
fn is_busy(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

fn may_repeat(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 401 | 404 | 408 | 416 | 425 | 429)
}

async fn has(endpoint: &Endpoint, name: &str, blob: &Blob) -> Result<bool, RegistryError> {
    let what = format!("the blob {}", blob.digest);
    let url = endpoint.url(&format!("{name}/blobs/{}", blob.digest))?;
    let head = |http: &reqwest::Client| http.request(Method::HEAD, url.clone());
    let response = endpoint.send(&what, &Scope::push(name), head).await?;
    match response.status() {
        status if status.is_success() || status.is_redirection() => Ok(true),
        StatusCode::NOT_FOUND => Ok(false),
        _ => Err(endpoint.refusal(&what, response).await),
    }
}

enum Begun {
    Mounted,
    At(Url),
}

/// Begins an upload, or mounts the blob from the first repository that has it.
async fn begin(
    endpoint: &Endpoint,
    name: &str,
    from: &[String],
    blob: &Blob,
) -> Result<Begun, RegistryError> {
    let what = format!("an upload to {name}");
    let mut url = endpoint.url(&format!("{name}/blobs/uploads/"))?;
    let mut scope = Scope::push(name);
    if let Some(from) = from.first() {
        url.query_pairs_mut().append_pair("mount", &blob.digest.to_string());
        url.query_pairs_mut().append_pair("from", from);
        scope = scope.and_pull(from);
    }
    let post = |http: &reqwest::Client| http.post(url.clone()).header(header::CONTENT_LENGTH, 0);
    let response = endpoint.send(&what, &scope, post).await?;
    match response.status() {
        StatusCode::CREATED => Ok(Begun::Mounted),
        StatusCode::ACCEPTED => {
            let why = "the registry named no upload that may be used";
            let url = endpoint.location(&response);
            url.map(Begun::At).ok_or_else(|| endpoint.invalid(&what, why.into()))
        }
        _ => Err(endpoint.refusal(&what, response).await),
    }
}

/// Returns the URL of an upload and the number of bytes that the registry has received.
async fn received(endpoint: &Endpoint, name: &str, upload: &Url) -> Option<(Url, u64)> {
    let get = |http: &reqwest::Client| http.get(upload.clone());
    let response = endpoint.send("an upload", &Scope::push(name), get).await.ok()?;
    if response.status() != StatusCode::NO_CONTENT {
        return None;
    }
    let range = response.headers().get(header::RANGE)?.to_str().ok()?;
    let last: u64 = range.trim_start_matches("bytes=").strip_prefix("0-")?.parse().ok()?;
    // An empty upload has the range `0-0`, as an upload of one byte has. To continue the latter at 0
    // would store its first byte twice.
    let received = (last > 0).then_some(last + 1)?;
    Some((endpoint.location(&response).unwrap_or_else(|| upload.clone()), received))
}

enum SendError {
    Download(RegistryError),
    Upload(RegistryError),
}

/// Sends the rest of a blob in one request.
async fn send(
    endpoint: &Endpoint,
    name: &str,
    upload: &Url,
    (blob, offset): (&Blob, u64),
    reader: &mut Reader<'_>,
    progress: &Progress,
) -> Result<Response, SendError> {
    let mut url = upload.clone();
    url.query_pairs_mut().append_pair("digest", &blob.digest.to_string());
    let (sender, receiver) = mpsc::channel(BUFFERED);
    let scope = Scope::push(name);
    let body = reqwest::Body::wrap_stream(Chunks(receiver));
    let limit = Duration::from_secs(blob.size / SLOWEST);
    let put = endpoint.upload(&scope, url, limit, |put| {
        let put = put
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(header::CONTENT_LENGTH, blob.size - offset);
        let put = match offset {
            0 => put,
            offset => put
                .header(header::CONTENT_RANGE, format!("{offset}-{}", blob.size.saturating_sub(1))),
        };
        put.body(body)
    });
    let feed = async move {
        loop {
            match reader.next().await {
                Ok(None) => return Ok(()),
                Ok(Some(chunk)) => {
                    progress.add(chunk.len() as u64);
                    if sender.send(Ok(chunk)).await.is_err() {
                        // The upload ended, and its response tells why.
                        return Ok(());
                    }
                }
                Err(error) => {
                    // Breaks the request, so that the registry stores nothing.
                    let _ended = sender.send(Err(io::Error::other("the download failed"))).await;
                    return Err(error);
                }
            }
        }
    };
    let (response, fed) = tokio::join!(put, feed);
    fed.map_err(SendError::Download)?;
    response.map_err(SendError::Upload)
}
