//! Tests pull and push against an HTTP server that fails. The runner stores only bytes that match
//! their digest, and sends the job token only to the registry.

use std::{
    collections::VecDeque,
    fs,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use domain::digest::Digest;
use oci_layout::{ArtifactManifest, Blob, Layout, LayoutError, sha256};
use runner_agent::{
    artifacts::{ArtifactError, LAYER_TYPE, component, pull, pull_blob, push},
    plugins::Registry,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Head and body of a request.
type Request = (String, Vec<u8>);
/// Status line, header and body of a response.
type Response = (&'static str, &'static str, Vec<u8>);

struct Scripted {
    registry: Registry,
    layout: Layout,
    requests: Arc<Mutex<Vec<Request>>>,
    _dir: TempDir,
}

impl Scripted {
    /// Starts a server that sends these responses one after the other.
    async fn new(responses: Vec<Response>) -> Self {
        let _first = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (recorded, mut responses, mut open_streams) =
            (requests.clone(), VecDeque::from(responses), Vec::new());
        tokio::spawn(async move {
            while let Some(response) = responses.pop_front() {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read(&mut stream).await;
                recorded.lock().unwrap().push(request);
                let (status, header, body) = response;
                if status == STALLED {
                    // The connection stays open, and no more data follows.
                    stream.write_all(&body).await.unwrap();
                    open_streams.push(stream);
                    continue;
                }
                let head = format!(
                    "HTTP/1.1 {status}\r\n{header}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.write_all(&body).await.unwrap();
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let http = reqwest::Client::new();
        let (token, idle_timeout) = ("job-token".into(), Duration::from_millis(500));
        let registry = Registry { base_url, token, http, idle_timeout, observer: None };
        Scripted { registry, layout, requests, _dir: dir }
    }

    fn lines(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|(head, _)| head.lines().next().unwrap().to_owned()).collect()
    }
}

async fn read(stream: &mut TcpStream) -> Request {
    let mut bytes = Vec::new();
    let end = loop {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    while bytes.len() < end + length {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
    }
    (head, bytes[end..].to_vec())
}

fn image() -> (ArtifactManifest, Vec<u8>, Digest) {
    let image = component(&Blob::of(LAYER_TYPE, b"the layer"), "");
    let bytes = image.to_bytes().unwrap();
    let digest = sha256(&bytes);
    (image, bytes, digest)
}

const PLAIN: &str = "x-nothing: here";
/// Status of a response that sends its body and then nothing more.
const STALLED: &str = "silence";

#[tokio::test]
async fn an_artifact_is_pulled_once_despite_failed_requests() {
    let (image, bytes, digest) = image();
    let server = Scripted::new(vec![
        ("502 Bad Gateway", PLAIN, vec![]),
        ("404 Not Found", "content-type: text/html", b"<html>".to_vec()),
        ("200 OK", "content-type: text/html", b"<html>please log in</html>".to_vec()),
        ("200 OK", PLAIN, bytes),
        ("200 OK", PLAIN, b"{}".to_vec()),
        ("200 OK", PLAIN, b"the layer".to_vec()),
    ])
    .await;
    let pulled = pull(&server.registry, &server.layout, "shop/web", &digest).await.unwrap();
    assert_eq!(pulled, image);
    assert!(server.layout.complete(&digest));
    let lines = server.lines();
    assert_eq!(lines[3], format!("get /v2/shop/web/manifests/{digest} http/1.1"));
    assert_eq!(lines[5], format!("get /v2/shop/web/blobs/{} http/1.1", sha256(b"the layer")));
    assert!(server.requests.lock().unwrap()[0].0.contains("authorization: bearer job-token"));

    // The server has no more responses: a stored artifact causes no request.
    pull(&server.registry, &server.layout, "shop/web", &digest).await.unwrap();
    let index = fs::read_to_string(server._dir.path().join("index.json")).unwrap();
    assert_eq!(index.matches(&digest.to_string()).count(), 1);
}

#[tokio::test]
async fn a_blob_that_does_not_match_its_digest_is_not_stored() {
    let wrong = || ("200 OK", PLAIN, b"something else".to_vec());
    let server = Scripted::new(vec![wrong(), wrong(), wrong(), wrong()]).await;
    let digest = sha256(b"the layer");
    let failure = pull_blob(&server.registry, &server.layout, "shop/web", &digest, 100).await;
    assert!(
        matches!(failure, Err(ArtifactError::Layout(LayoutError::WrongDigest { .. }))),
        "{failure:?}"
    );
    assert!(!server.layout.has(&digest));
    let remaining = fs::read_dir(server._dir.path()).unwrap().count();
    assert_eq!(remaining, 2, "only blobs and oci-layout, no temporary file");
}

#[tokio::test]
async fn a_stalled_pull_is_retried() {
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nthe ".to_vec();
    let server = Scripted::new(vec![
        (STALLED, PLAIN, vec![]),
        (STALLED, PLAIN, half),
        ("200 OK", PLAIN, b"the layer".to_vec()),
    ])
    .await;
    let digest = sha256(b"the layer");
    pull_blob(&server.registry, &server.layout, "shop/web", &digest, 100).await.unwrap();
    assert!(server.layout.has(&digest));
    assert_eq!(server.lines().len(), 3);
}

#[tokio::test]
async fn a_blob_above_its_limit_and_rejections_are_not_retried() {
    let problem = "content-type: application/problem+json";
    let server = Scripted::new(vec![
        ("200 OK", PLAIN, vec![b'x'; 200]),
        ("404 Not Found", problem, b"{}".to_vec()),
        ("401 Unauthorized", problem, b"{}".to_vec()),
    ])
    .await;
    let digest = sha256(b"the layer");
    let get = || pull_blob(&server.registry, &server.layout, "shop/web", &digest, 100);
    let large = get().await.unwrap_err();
    assert!(matches!(large, ArtifactError::Layout(LayoutError::TooLarge { limit: 100 })));
    assert!(matches!(get().await, Err(ArtifactError::Missing { .. })));
    assert!(matches!(get().await, Err(ArtifactError::Registry { status: 401, .. })));
}

#[tokio::test]
async fn an_artifact_that_cannot_be_unpacked_is_not_pulled() {
    let layer = Blob { size: 3 << 30, ..Blob::of(LAYER_TYPE, b"the layer") };
    let bytes = component(&layer, "").to_bytes().unwrap();
    let digest = sha256(&bytes);
    let server = Scripted::new(vec![("200 OK", PLAIN, bytes)]).await;
    let large = pull(&server.registry, &server.layout, "shop/web", &digest).await.unwrap_err();
    assert!(matches!(large, ArtifactError::TooLarge { .. }), "{large}");
    assert_eq!(server.lines().len(), 1, "only the manifest");
}

#[tokio::test]
async fn a_blob_of_a_removed_artifact_is_used_again() {
    let (_, bytes, digest) = image();
    let server =
        Scripted::new(vec![("200 OK", PLAIN, bytes), ("200 OK", PLAIN, b"{}".to_vec())]).await;
    let layer = server.layout.put(b"the layer").unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(7200);
    server.layout.touch(&layer, long_ago);
    pull(&server.registry, &server.layout, "shop/web", &digest).await.unwrap();
    let used = fs::metadata(server.layout.path(&layer)).unwrap().modified().unwrap();
    assert!(used > long_ago, "a concurrent cleanup would delete the blob");
}

#[tokio::test]
async fn an_artifact_is_pushed_blob_by_blob_and_then_its_manifest() {
    let (_, bytes, digest) = image();
    let server = Scripted::new(vec![
        ("200 OK", PLAIN, vec![]), // the empty config is there
        ("404 Not Found", PLAIN, vec![]),
        ("202 Accepted", "location: /v2/shop/web/blobs/uploads/7?state=x", vec![]),
        ("201 Created", PLAIN, vec![]),
        ("201 Created", PLAIN, vec![]),
    ])
    .await;
    server.layout.put(b"the layer").unwrap();
    let artifact = component(&Blob::of(LAYER_TYPE, b"the layer"), "");
    let pushed = push(&server.registry, &server.layout, "shop/web", &artifact).await.unwrap();
    assert_eq!(pushed, (digest.clone(), bytes.len() as u64 + 2 + 9));
    let lines = server.lines();
    assert!(lines[0].starts_with("head /v2/shop/web/blobs/sha256:"), "{lines:?}");
    assert!(lines[3].starts_with("put /v2/shop/web/blobs/uploads/7?state=x&digest=sha256"));
    assert_eq!(lines[4], format!("put /v2/shop/web/manifests/{digest} http/1.1"));
    let requests = server.requests.lock().unwrap();
    assert_eq!(requests[3].1, b"the layer");
    assert_eq!(requests[4].1, bytes);
}

#[tokio::test]
async fn the_token_is_not_sent_to_another_host() {
    let server = Scripted::new(vec![
        ("404 Not Found", PLAIN, vec![]),
        ("202 Accepted", "location: http://127.0.0.1:9/elsewhere", vec![]),
    ])
    .await;
    server.layout.put(b"the layer").unwrap();
    let artifact = component(&Blob::of(LAYER_TYPE, b"the layer"), "");
    let error = push(&server.registry, &server.layout, "shop/web", &artifact).await.unwrap_err();
    assert!(
        error.to_string().contains("no Location header with the registry's own origin"),
        "{error}"
    );
    assert_eq!(server.lines().len(), 2);
}
