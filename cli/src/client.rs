//! Client of the Control API, for the CLI and the tests.
//!
//! Every change carries an idempotency key, so that the client can send it again after a lost
//! connection. The client remembers the highest position in a response, and requests reads that are
//! at least as fresh. A caller therefore always reads its own writes.
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

/// Maximum attempts of a call whose response is lost, or delayed by the server.
const TRIES: u32 = 4;
/// Longest wait between two attempts.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Timeout of a response. Streams are exempt.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Server address and credentials.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// `http://` or `https://`, host and port.
    pub server: String,
    /// The bearer token.
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

/// Errors of a call.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server rejected the request.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// The server did not respond.
    #[error("cannot reach {server}: {reason}")]
    Unreachable {
        /// Address of the server.
        server: String,
        /// The innermost cause.
        reason: String,
    },
    /// The response is not one of the Control API.
    #[error("cannot read the response of {server} (HTTP status {status}): {reason}")]
    Undecodable {
        /// Address of the server.
        server: String,
        /// HTTP status of the response.
        status: u16,
        /// Reason that the response cannot be read.
        reason: String,
    },
    /// The client configuration is invalid.
    #[error("{0}")]
    Setup(String),
}

impl ClientError {
    /// Problem code of a rejection.
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
        // A second client in the same process finds the provider installed, which is fine.
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
        let http = http.build().map_err(|e| ClientError::Setup(innermost(&e)))?;
        let (token, seen, for_people) = (target.token.clone(), AtomicU64::new(0), false);
        Ok(Client { http, server, token, seen, sanitizes: for_people })
    }

    /// Sets whether responses are for a terminal, where every text is sanitized.
    pub fn sanitize_responses(self, for_people: bool) -> Self {
        Client { sanitizes: for_people, ..self }
    }

    /// Address of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Highest position in a response so far.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Reads `path` with a query.
    pub async fn get<A: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<A, ClientError> {
        let answer = self.retrying(|| self.request(Method::GET, path).query(query)).await?;
        self.decode(answer).await
    }

    /// Reads data that is hashed or verified, without changing a byte. Code that prints it must use
    /// [`sanitize`].
    pub async fn exact<A: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<A, ClientError> {
        let answer = self.retrying(|| self.request(Method::GET, path).query(query)).await?;
        let (status, bytes) = self.bytes(answer).await?;
        self.read(status, &bytes)
    }

    /// Reads data that includes every earlier write of this client.
    pub async fn fresh<A: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<A, ClientError> {
        let fresh = match self.seen() {
            0 => Vec::new(),
            seen => vec![("min_position", seen)],
        };
        let ask = || self.request(Method::GET, path).query(query).query(&fresh);
        let answer = self.retrying(ask).await?;
        self.decode(answer).await
    }

    /// Sends a change, again with the same key if the response is lost.
    pub async fn change<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<A, ClientError> {
        let key = Ulid::new().to_string();
        let ask = || {
            let method = method.clone();
            self.request(method, path).header("idempotency-key", &key).json(body)
        };
        let answer = self.retrying(ask).await?;
        self.note_position(answer).await
    }

    /// Sends a change with a body that is not JSON.
    pub async fn upload<A: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
        kind: &str,
        body: Bytes,
    ) -> Result<A, ClientError> {
        let key = Ulid::new().to_string();
        let ask = || {
            self.request(Method::POST, path)
                .query(query)
                .header("idempotency-key", &key)
                .header(header::CONTENT_TYPE, kind)
                .body(body.clone())
        };
        let answer = self.retrying(ask).await?;
        self.note_position(answer).await
    }

    /// Opens a stream. Waits only for the start of the response.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        query: &impl Serialize,
        accept: &str,
        last_event: Option<&str>,
    ) -> Result<Response, ClientError> {
        let mut ask = self.authorised(self.http.request(method, format!("{}{path}", self.server)));
        ask = ask.query(query).header(header::ACCEPT, accept);
        if let Some(id) = last_event {
            ask = ask.header("last-event-id", id);
        }
        let answer = ask.send().await.map_err(|e| self.unreachable(&e))?;
        self.accepted(answer).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let ask = self.http.request(method, format!("{}{path}", self.server)).timeout(TIMEOUT);
        self.authorised(ask)
    }

    fn authorised(&self, ask: RequestBuilder) -> RequestBuilder {
        match &self.token {
            Some(token) => ask.bearer_auth(token),
            None => ask,
        }
    }

    /// Sends a request. Repeats it after a 503 or a lost response, with at most `TRIES` attempts in
    /// total.
    async fn retrying(&self, ask: impl Fn() -> RequestBuilder) -> Result<Response, ClientError> {
        let mut wait = Duration::from_millis(200);
        for _ in 1..TRIES {
            match ask().send().await {
                Ok(answer) if answer.status() == StatusCode::SERVICE_UNAVAILABLE => {
                    tokio::time::sleep(retry_after(&answer).unwrap_or(wait).min(MAX_RETRY_DELAY))
                        .await;
                }
                Ok(answer) => return self.accepted(answer).await,
                // A refused connection will not recover within seconds, so report it immediately.
                Err(error) if error.is_connect() || error.is_builder() => {
                    return Err(self.unreachable(&error));
                }
                Err(_) => tokio::time::sleep(wait).await,
            }
            wait = (wait * 2).min(MAX_RETRY_DELAY);
        }
        let answer = ask().send().await.map_err(|e| self.unreachable(&e))?;
        self.accepted(answer).await
    }

    async fn accepted(&self, answer: Response) -> Result<Response, ClientError> {
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let bytes = self.bytes(answer).await?.1;
        match serde_json::from_slice::<Problem>(&self.shown(bytes)) {
            Ok(problem) if !problem.code.is_empty() => Err(ClientError::Problem(Box::new(problem))),
            Ok(_) | Err(_) => Err(self.undecodable(status, "an error without problem details")),
        }
    }

    async fn note_position<A: DeserializeOwned>(&self, answer: Response) -> Result<A, ClientError> {
        let value: Value = self.decode(answer).await?;
        if let Some(position) = value.get("position").and_then(Value::as_u64) {
            self.seen.fetch_max(position, Ordering::Relaxed);
        }
        let read = serde_json::from_value(value);
        read.map_err(|e| self.undecodable(StatusCode::OK, &e.to_string()))
    }

    async fn decode<A: DeserializeOwned>(&self, answer: Response) -> Result<A, ClientError> {
        let (status, bytes) = self.bytes(answer).await?;
        self.read(status, &self.shown(bytes))
    }

    async fn bytes(&self, answer: Response) -> Result<(StatusCode, Bytes), ClientError> {
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|e| self.unreachable(&e))?;
        Ok((status, bytes))
    }

    fn shown(&self, bytes: Bytes) -> Bytes {
        match self.sanitizes.then(|| sanitize::answer(&bytes)).flatten() {
            Some(tamed) => tamed.into(),
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

fn retry_after(answer: &Response) -> Option<Duration> {
    let seconds = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Innermost cause of an error. The texts of reqwest repeat the address and hide the reason.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
