//! Registry for tests, with faults: it cuts bodies, fails requests, and lies.

use std::{
    collections::{HashMap, VecDeque},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use domain::digest::Digest;
use oci_layout::sha256;
use rand::Rng as _;
use serde_json::{Value, json};

pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Running registry. Its thread ends with the process of the tests.
pub(super) struct Fake {
    pub host: String,
    pub state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(super) struct State {
    pub blobs: HashMap<Digest, Vec<u8>>,
    pub documents: HashMap<String, (String, Vec<u8>)>,
    uploads: HashMap<String, Vec<u8>>,
    /// Cuts every download and upload at a random byte.
    pub cuts: bool,
    /// Number of bytes after which the first upload is cut. Default: a random one.
    pub first_cut: Option<usize>,
    /// Ignores ranges.
    pub ignores_ranges: bool,
    /// Statuses of the next requests.
    pub failures: VecDeque<u16>,
    /// Address that every blob is redirected to.
    pub redirect: Option<String>,
    /// Challenge for requests without credentials.
    pub challenge: Option<String>,
    /// Requests that never get a response.
    pub hangs: usize,
    pub requests: Vec<Request>,
    pub sent: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Request {
    pub method: String,
    pub path: String,
    pub headers: HashMap<String, String>,
}

impl Fake {
    pub(super) fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || {
                    let _ended = serve(stream, &state);
                });
            }
        });
        Fake { host, state }
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    pub(super) fn count(&self, matches: impl Fn(&Request) -> bool) -> usize {
        self.state.lock().unwrap().requests.iter().filter(|request| matches(request)).count()
    }

    /// Stores a document under its digest and a tag.
    pub(super) fn document(&self, tag: &str, media_type: &str, document: &Value) -> Digest {
        let bytes = document.to_string().into_bytes();
        let digest = sha256(&bytes);
        self.set(|state| {
            for reference in [tag.to_owned(), digest.to_string()] {
                state.documents.insert(reference, (media_type.to_owned(), bytes.clone()));
            }
        });
        digest
    }

    /// Stores an image for `linux/amd64`.
    pub(super) fn image(&self, tag: &str, layers: &[Vec<u8>]) -> Digest {
        let config = json!({"os": "linux", "architecture": "amd64"}).to_string().into_bytes();
        let descriptor = |media_type: &str, bytes: &[u8]| {
            let digest = sha256(bytes);
            self.set(|state| {
                state.blobs.insert(digest.clone(), bytes.to_vec());
            });
            json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
        };
        let layer = "application/vnd.oci.image.layer.v1.tar";
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": layers.iter().map(|bytes| descriptor(layer, bytes)).collect::<Vec<_>>(),
        });
        self.document(tag, MANIFEST, &manifest)
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let request = Request { method: method.into(), path: path.into(), headers };
    let response = respond(&request, &mut reader, state);
    match response {
        Some(Response { status, headers, body, cut }) => {
            let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\n{headers}\r\n");
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body[..cut.unwrap_or(body.len())])
        }
        None => Ok(()),
    }
}

struct Response {
    status: u16,
    headers: String,
    body: Vec<u8>,
    cut: Option<usize>,
}

fn plain(status: u16, headers: String) -> Response {
    let headers = format!("{headers}Content-Length: 0\r\n");
    Response { status, headers, body: vec![], cut: None }
}

fn respond(
    request: &Request,
    body: &mut BufReader<TcpStream>,
    state: &Mutex<State>,
) -> Option<Response> {
    let length: usize = request.headers.get("content-length").map_or(0, |n| n.parse().unwrap());
    let upload = request.path.contains("/blobs/uploads/") && request.method == "PUT";
    let (mut received, mut broken) = (vec![0; length], false);
    if upload && state.lock().unwrap().cuts && length > 1 {
        let first = state.lock().unwrap().first_cut.take();
        received.truncate(first.unwrap_or_else(|| rand::thread_rng().gen_range(1..length)));
        broken = true;
    }
    body.read_exact(&mut received).ok()?;
    let mut state = state.lock().unwrap();
    state.requests.push(request.clone());
    if state.hangs > 0 {
        state.hangs -= 1;
        drop(state);
        thread::sleep(std::time::Duration::from_secs(30));
        return None;
    }
    if let Some(status) = state.failures.pop_front() {
        return Some(plain(status, "Retry-After: 0\r\n".into()));
    }
    if let Some(challenge) = &state.challenge
        && !request.headers.contains_key("authorization")
    {
        return Some(plain(401, format!("WWW-Authenticate: {challenge}\r\n")));
    }
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let last = path.rsplit('/').next().unwrap_or_default().to_owned();
    if path.contains("/blobs/uploads/") {
        return uploaded(&mut state, request, (&last, query), received, broken);
    }
    if path.contains("/manifests/") && request.method == "PUT" {
        let digest = sha256(&received).to_string();
        let kind = request.headers["content-type"].clone();
        state.documents.insert(digest, (kind.clone(), received.clone()));
        state.documents.insert(last, (kind, received));
        return Some(plain(201, String::new()));
    }
    let (kind, content) = match path.contains("/manifests/") {
        true => match state.documents.get(&last) {
            Some(document) => document.clone(),
            None => return Some(plain(404, String::new())),
        },
        false => {
            if let Some(to) = &state.redirect {
                return Some(plain(307, format!("Location: {to}/{last}\r\n")));
            }
            match state.blobs.get(&last.parse().ok()?) {
                Some(blob) => ("application/octet-stream".into(), blob.clone()),
                None => return Some(plain(404, String::new())),
            }
        }
    };
    let range = request.headers.get("range").filter(|_| !state.ignores_ranges);
    let from: usize = range.map_or(0, |range| range[6..].trim_end_matches('-').parse().unwrap());
    let rest = content[from..].to_vec();
    let is_blob = !path.contains("/manifests/") && request.method == "GET";
    let cut = (is_blob && state.cuts && rest.len() > 1)
        .then(|| rand::thread_rng().gen_range(1..rest.len()));
    state.sent += if is_blob { cut.unwrap_or(rest.len()) as u64 } else { 0 };
    let mut headers = format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", rest.len());
    headers += &format!("Docker-Content-Digest: {}\r\n", sha256(&content));
    let status = if from > 0 { 206 } else { 200 };
    if from > 0 {
        let size = content.len();
        headers += &format!("Content-Range: bytes {from}-{}/{size}\r\n", size - 1);
    }
    let body = if request.method == "HEAD" { vec![] } else { rest };
    Some(Response { status, headers, body, cut: cut.filter(|_| request.method == "GET") })
}

fn uploaded(
    state: &mut State,
    request: &Request,
    (id, query): (&str, &str),
    received: Vec<u8>,
    broken: bool,
) -> Option<Response> {
    match request.method.as_str() {
        "POST" => {
            let id = format!("u{}", state.requests.len());
            state.uploads.insert(id.clone(), vec![]);
            Some(plain(202, format!("Location: /v2/x/blobs/uploads/{id}\r\n")))
        }
        "GET" => {
            let known = state.uploads.get(id)?.len();
            Some(plain(204, format!("Range: 0-{}\r\n", known.saturating_sub(1))))
        }
        _ => {
            let known = state.uploads.get_mut(id)?;
            known.extend(received);
            if broken {
                return None;
            }
            let digest = sha256(known);
            let named = query.trim_start_matches("digest=").replace("%3A", ":");
            if digest.to_string() != named {
                return Some(plain(400, String::new()));
            }
            let blob = state.uploads.remove(id)?;
            state.blobs.insert(digest, blob);
            Some(plain(201, String::new()))
        }
    }
}
