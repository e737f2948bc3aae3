//! Registry of a vendor for tests, with faults.
use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use domain::digest::Digest;
use futures::{StreamExt as _, stream};
use oci_registry::VendorLocation;
use serde_json::{Value, json};

/// Prefix of the repositories.
const PREFIX: &str = "vendor";

/// Running registry.
pub(crate) struct Fake {
    host: String,
    content: Arc<Mutex<Content>>,
}

#[derive(Default)]
pub(crate) struct Content {
    /// Blobs and documents by their path.
    stored: HashMap<String, Bytes>,
    /// Method and path of each request, with the offset of a range.
    pub requests: Vec<String>,
    /// Number of next blobs that end in the middle.
    pub cuts: u32,
    /// Number of next blobs with other bytes.
    pub wrong: u32,
    /// Status of every response.
    pub status: Option<StatusCode>,
    /// Address that blobs are redirected to.
    pub redirect: Option<String>,
    /// Time before each response.
    pub delay: Duration,
}

impl Fake {
    pub(crate) async fn start() -> Fake {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let content = Arc::<Mutex<Content>>::default();
        let routes = Router::new().fallback(respond).with_state(Arc::clone(&content));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Fake { host, content }
    }

    pub(crate) fn location(&self) -> VendorLocation {
        format!("oci://{}/{PREFIX}", self.host).parse().unwrap()
    }

    /// URL of the blobs of a repository.
    pub(crate) fn blobs_of(&self, repository: &str) -> String {
        format!("http://{}/v2/{PREFIX}/{repository}/blobs", self.host)
    }

    pub(crate) fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap()
    }

    /// Returns the number of requests that contain a text.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.content().requests.iter().filter(|request| request.contains(text)).count()
    }

    /// Stores a blob or a document, and returns its digest.
    pub(crate) fn store(&self, repository: &str, kind: &str, bytes: impl Into<Bytes>) -> Digest {
        let bytes = bytes.into();
        let digest = oci_layout::sha256(&bytes);
        let path = format!("/v2/{PREFIX}/{repository}/{kind}/{digest}");
        self.content().stored.insert(path, bytes);
        digest
    }

    /// Stores an artifact with this layer, and returns the digest of its manifest.
    pub(crate) fn artifact(&self, repository: &str, layer: &Bytes) -> Digest {
        let descriptor = |media_type: &str, bytes: &Bytes| {
            let digest = self.store(repository, "blobs", bytes.clone());
            json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
        };
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": "application/vnd.stead.component.v1",
            "config": descriptor("application/vnd.oci.empty.v1+json", &Bytes::from_static(b"{}")),
            "layers": [descriptor("application/vnd.stead.component.layer.v1.tar", layer)],
        });
        self.document(repository, &manifest)
    }

    pub(crate) fn document(&self, repository: &str, document: &Value) -> Digest {
        self.store(repository, "manifests", serde_json::to_vec(document).unwrap())
    }
}

async fn respond(State(content): State<Arc<Mutex<Content>>>, request: Request) -> Response {
    let (path, method) = (request.uri().path().to_owned(), request.method().clone());
    let range = request.headers().get(header::RANGE);
    let from = range.map_or(0, |range| {
        let range = range.to_str().unwrap().trim_start_matches("bytes=").trim_end_matches('-');
        range.parse::<usize>().unwrap()
    });
    let delay = content.lock().unwrap().delay;
    tokio::time::sleep(delay).await;
    let mut content = content.lock().unwrap();
    content.requests.push(format!("{method} {path} from {from}"));
    if let Some(status) = content.status {
        return status.into_response();
    }
    let is_blob = path.contains("/blobs/");
    if is_blob && let Some(to) = &content.redirect {
        let to = format!("{to}/{}", path.rsplit('/').next().unwrap());
        return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)]).into_response();
    }
    let Some(bytes) = content.stored.get(&path).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mut rest = bytes.slice(from..);
    if is_blob && content.wrong > 0 {
        content.wrong -= 1;
        rest = vec![0; rest.len()].into();
    }
    let length = rest.len();
    let body = if method == Method::HEAD {
        Body::empty()
    } else if is_blob && content.cuts > 0 {
        content.cuts -= 1;
        let half = stream::iter([Ok(rest.slice(..length / 2))]);
        Body::from_stream(half.chain(stream::once(async {
            // The first half must arrive before the connection ends.
            tokio::time::sleep(Duration::from_millis(50)).await;
            Err(io::Error::other("cut"))
        })))
    } else {
        Body::from(rest)
    };
    let range =
        (header::CONTENT_RANGE, format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len()));
    let length = (header::CONTENT_LENGTH, length.to_string());
    match from {
        0 => ([length], body).into_response(),
        _ => (StatusCode::PARTIAL_CONTENT, [length, range], body).into_response(),
    }
}
