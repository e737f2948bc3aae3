//! Client of the Control API, for the CLI and the tests.
//!
//! Every request that changes state has an idempotency key, unless it opens a stream. So the client
//! can repeat the request after a lost connection. The client remembers the highest position in the
//! responses to changes. [`Client::fresh`] reads data that includes this position.
mod calls;
mod export_line;
mod history;
mod sanitize;
mod stream;
mod verify;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use schemas::problem::Problem;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use ulid::Ulid;

pub use export_line::take_exported_line;
pub use history::{HistoryError, ProvenHistory, proven_history};
pub use sanitize::sanitize;
pub use stream::{ServerEvent, lines, server_events};
pub use verify::{Fault, Verifier};

/// Maximum number of attempts of a call, if responses are lost or have status 503.
const MAX_ATTEMPTS: u32 = 4;
/// Longest wait between two attempts.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Timeout of a request, including the response body. Streams have no timeout.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Assumed minimum upload rate, in bytes per second, for the timeout of a large upload.
const SLOWEST_UPLOAD: u64 = 64 * 1024;

/// Server address and credentials.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// `http://` or `https://`, host and port.
    pub server: String,
    /// Bearer token. If `None`, the client sends no token.
    pub token: Option<String>,
    /// PEM file of a private certificate authority.
    pub ca: Option<PathBuf>,
}

/// A connection to one server as one principal.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    server: String,
    token: Option<String>,
    seen: AtomicU64,
    sanitizes: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server rejected the request.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// The server did not send a complete response.
    #[error("cannot reach {server}: {reason}")]
    Unreachable {
        server: String,
        /// The innermost cause.
        reason: String,
    },
    /// The response does not follow the Control API, for example because a proxy sent it.
    #[error("cannot read the response of {server} (HTTP status {status}): {reason}")]
    Undecodable { server: String, status: u16, reason: String },
    /// The client configuration is invalid.
    #[error("{0}")]
    Setup(String),
}

impl ClientError {
    /// Problem code of a rejection. `None` for the other errors.
    pub fn code(&self) -> Option<&str> {
        match self {
            ClientError::Problem(problem) => Some(&problem.code),
            ClientError::Unreachable { .. }
            | ClientError::Undecodable { .. }
            | ClientError::Setup(_) => None,
        }
    }
}

impl Client {
    /// Prepares calls to a server. Sends nothing yet.
    pub fn new(target: &Target) -> Result<Self, ClientError> {
        // An error means that the process already has a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .tcp_keepalive(Duration::from_secs(15))
            .user_agent(concat!("stead/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &target.ca {
            let setup = |e: &dyn std::fmt::Display| {
                ClientError::Setup(format!("cannot use the CA file {}: {e}", path.display()))
            };
            let pem = std::fs::read(path).map_err(|e| setup(&e))?;
            for authority in reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| setup(&e))? {
                http = http.add_root_certificate(authority);
            }
        }
        let server = target.server.trim_end_matches('/').to_owned();
        if !(server.starts_with("http://") || server.starts_with("https://")) {
            return Err(ClientError::Setup(format!(
                "{server:?} is not a valid server address: use http:// or https://, host and port"
            )));
        }
        let http = http.build().map_err(|e| {
            ClientError::Setup(format!("cannot set up the HTTP client: {}", innermost(&e)))
        })?;
        let (token, seen, for_people) = (target.token.clone(), AtomicU64::new(0), false);
        Ok(Client { http, server, token, seen, sanitizes: for_people })
    }

    /// Sets whether the client replaces control characters in the strings of responses. Required
    /// for output to a terminal.
    pub fn sanitize_responses(self, for_people: bool) -> Self {
        Client { sanitizes: for_people, ..self }
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// Highest log position in the responses to changes so far. 0 if there was no change.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Reads `path` with a query.
    pub async fn get<A: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<A, ClientError> {
        let response = self.retrying(|| self.request(Method::GET, path).query(query)).await?;
        self.decode(response).await
    }

    /// Reads data that the caller hashes or verifies. Does not sanitize the response: code that
    /// prints the data must use [`sanitize`].
    pub async fn exact<A: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<A, ClientError> {
        let response = self.retrying(|| self.request(Method::GET, path).query(query)).await?;
        let (status, bytes) = self.bytes(response).await?;
        self.read(status, &bytes)
    }

    /// Reads data that includes every change whose response this client has received.
    pub async fn fresh<A: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<A, ClientError> {
        let fresh = match self.seen() {
            0 => Vec::new(),
            seen => vec![("min_position", seen)],
        };
        let request = || self.request(Method::GET, path).query(query).query(&fresh);
        let response = self.retrying(request).await?;
        self.decode(response).await
    }

    /// Sends a change. Repeats the request with the same idempotency key if the response is lost or
    /// has status 503.
    pub async fn change<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<A, ClientError> {
        let key = idempotency_key();
        let request = || {
            let method = method.clone();
            self.request(method, path).header("idempotency-key", &key).json(body)
        };
        let response = self.retrying(request).await?;
        self.note_position(response).await
    }

    /// Sends a change with a body that is not JSON.
    pub async fn upload<A: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
        kind: &str,
        body: Bytes,
    ) -> Result<A, ClientError> {
        let key = idempotency_key();
        let request = || {
            self.request(Method::POST, path)
                .query(query)
                .header("idempotency-key", &key)
                .header(header::CONTENT_TYPE, kind)
                .body(body.clone())
        };
        let response = self.retrying(request).await?;
        self.note_position(response).await
    }

    /// Stores bytes at a path that contains their digest. The request is idempotent without a key.
    pub async fn store(&self, path: &str, bytes: Bytes) -> Result<(), ClientError> {
        let url = format!("{}{path}", self.server);
        let timeout = TIMEOUT + Duration::from_secs(bytes.len() as u64 / SLOWEST_UPLOAD);
        let request = || {
            self.authorised(self.http.put(&url).timeout(timeout))
                .header(header::CONTENT_TYPE, "application/octet-stream")
                .body(bytes.clone())
        };
        self.retrying(request).await.map(drop)
    }

    /// Opens a response stream. Waits only for the status and the headers.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        query: &impl Serialize,
        accept: &str,
        last_event: Option<&str>,
    ) -> Result<Response, ClientError> {
        let mut request =
            self.authorised(self.http.request(method, format!("{}{path}", self.server)));
        request = request.query(query).header(header::ACCEPT, accept);
        if let Some(id) = last_event {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.map_err(|e| self.unreachable(&e))?;
        self.accepted(response).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.server)).timeout(TIMEOUT);
        self.authorised(request)
    }

    fn authorised(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a request. Repeats the request after a 503 or a lost response, with at most
    /// `MAX_ATTEMPTS` attempts in total.
    async fn retrying(
        &self,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<Response, ClientError> {
        let mut wait = Duration::from_millis(200);
        for _ in 1..MAX_ATTEMPTS {
            match request().send().await {
                Ok(response) if response.status() == StatusCode::SERVICE_UNAVAILABLE => {
                    tokio::time::sleep(retry_after(&response).unwrap_or(wait).min(MAX_RETRY_DELAY))
                        .await;
                }
                Ok(response) => return self.accepted(response).await,
                // A connection that cannot be established rarely recovers within seconds, so report
                // the error immediately.
                Err(error) if error.is_connect() || error.is_builder() => {
                    return Err(self.unreachable(&error));
                }
                Err(_) => tokio::time::sleep(wait).await,
            }
            wait = (wait * 2).min(MAX_RETRY_DELAY);
        }
        let response = request().send().await.map_err(|e| self.unreachable(&e))?;
        self.accepted(response).await
    }

    async fn accepted(&self, response: Response) -> Result<Response, ClientError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = self.bytes(response).await?.1;
        match serde_json::from_slice::<Problem>(&self.sanitized(bytes)) {
            Ok(problem) if !problem.code.is_empty() => Err(ClientError::Problem(Box::new(problem))),
            Ok(_) | Err(_) => Err(self.undecodable(status, "an error without problem details")),
        }
    }

    async fn note_position<A: DeserializeOwned>(
        &self,
        response: Response,
    ) -> Result<A, ClientError> {
        let value: Value = self.decode(response).await?;
        if let Some(position) = value.get("position").and_then(Value::as_u64) {
            self.seen.fetch_max(position, Ordering::Relaxed);
        }
        let read = serde_json::from_value(value);
        read.map_err(|e| self.undecodable(StatusCode::OK, &e.to_string()))
    }

    async fn decode<A: DeserializeOwned>(&self, response: Response) -> Result<A, ClientError> {
        let (status, bytes) = self.bytes(response).await?;
        self.read(status, &self.sanitized(bytes))
    }

    async fn bytes(&self, response: Response) -> Result<(StatusCode, Bytes), ClientError> {
        let status = response.status();
        let bytes = response.bytes().await.map_err(|e| self.unreachable(&e))?;
        Ok((status, bytes))
    }

    fn sanitized(&self, bytes: Bytes) -> Bytes {
        match self.sanitizes.then(|| sanitize::sanitize_bytes(&bytes)).flatten() {
            Some(sanitized) => sanitized.into(),
            None => bytes,
        }
    }

    fn read<A: DeserializeOwned>(
        &self,
        status: StatusCode,
        bytes: &[u8],
    ) -> Result<A, ClientError> {
        serde_json::from_slice(bytes).map_err(|e| self.undecodable(status, &e.to_string()))
    }

    fn unreachable(&self, error: &reqwest::Error) -> ClientError {
        let reason = if error.is_timeout() { "request timed out".into() } else { innermost(error) };
        ClientError::Unreachable { server: self.server.clone(), reason }
    }

    fn undecodable(&self, status: StatusCode, reason: &str) -> ClientError {
        let (server, status) = (self.server.clone(), status.as_u16());
        ClientError::Undecodable { server, status, reason: sanitize(reason) }
    }
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Innermost cause of an error. The messages of reqwest repeat the address and hide the reason.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Returns a new idempotency key, so that the server handles a repeated request once.
#[expect(clippy::disallowed_methods, reason = "the client is the only source of these keys")]
fn idempotency_key() -> String {
    Ulid::new().to_string()
}
