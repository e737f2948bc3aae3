//! HTTP client of the server, with timeouts, short-lived tokens and retries.
//!
//! Every call is idempotent, so the client repeats it until the response is conclusive. A
//! conclusive response is a success that can be parsed, or a rejection with a problem code. Failed
//! connections, the HTML of a proxy, 408, 425, 429 and 5xx except 507 are not conclusive.
mod backoff;
pub mod limits;
mod response;
mod token;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use reqwest::{
    Method, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};
use schemas::{
    problem::Problem,
    runner::{EXECUTION, SessionOpened},
};
use serde::Serialize;
use tracing::{debug, warn};

use self::{
    backoff::Backoff,
    limits::{InvalidResponse, Response},
};
pub use self::{response::ApiResponse, token::Tokens};
use crate::tls::Trust;

/// Longest pause between two attempts while a job is open, unless the server requests a longer one.
pub const BUSY_CAP: Duration = Duration::from_secs(30);
/// Longest pause between two attempts of an idle runner, unless the server requests a longer one.
pub const IDLE_CAP: Duration = Duration::from_secs(60);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Rejection by the server, or an error of the runner itself with the status 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}{problem}", if *status == 0 { "" } else { "the server rejected the request: " })]
pub struct ServerRejection {
    /// HTTP status of the response; 0 if the runner cannot build or complete the request.
    pub status: u16,
    pub problem: Problem,
    /// Number of log bytes that the server has, from the `Range` header of the response.
    pub have: Option<u64>,
}

impl ServerRejection {
    pub fn code(&self) -> &str {
        &self.problem.code
    }

    /// Returns true if another session replaced the session of the request.
    pub fn is_superseded(&self) -> bool {
        self.status == 409 && self.code() == "session_superseded"
    }

    /// Returns true if the session of the request has ended. The next session may already be open.
    fn is_of_a_former_session(&self) -> bool {
        self.is_superseded() || (self.status == 409 && self.code() == "session_unknown")
    }
}

#[derive(Debug, Clone)]
pub struct ApiRequest {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: bytes::Bytes,
    wait: Duration,
    cap: Duration,
    with_token: bool,
}

impl ApiRequest {
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        ApiRequest {
            method,
            path: path.into(),
            headers: HeaderMap::new(),
            body: bytes::Bytes::new(),
            wait: Duration::ZERO,
            cap: BUSY_CAP,
            with_token: true,
        }
    }

    pub fn json<T: Serialize>(
        method: Method,
        path: impl Into<String>,
        body: &T,
    ) -> serde_json::Result<Self> {
        let request = ApiRequest::new(method, path).bytes(serde_json::to_vec(body)?);
        Ok(request.header(CONTENT_TYPE, "application/json"))
    }

    /// Sets the body.
    pub fn bytes(self, body: impl Into<bytes::Bytes>) -> Self {
        ApiRequest { body: body.into(), ..self }
    }

    /// Sets a header, unless the value is invalid.
    pub fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Adds the time of a long poll to the timeout.
    pub fn parked(self, wait: Duration) -> Self {
        ApiRequest { wait, ..self }
    }

    /// Allows longer pauses between attempts, because no job is open.
    pub fn idle(self) -> Self {
        ApiRequest { cap: IDLE_CAP, ..self }
    }

    /// Returns true if the request belongs to an execution. Such a request stays valid after its
    /// session.
    fn outlives(&self) -> bool {
        self.with_token && self.headers.contains_key(EXECUTION)
    }

    /// Sends the request without an access token.
    pub fn without_token(self) -> Self {
        ApiRequest { with_token: false, ..self }
    }
}

#[derive(Debug, Clone)]
pub struct Client {
    base: String,
    http: reqwest::Client,
    tokens: Option<Arc<Tokens>>,
    /// Time of the last successful call, or of the creation of the client.
    last_contact: Arc<Mutex<Instant>>,
}

impl Client {
    /// Returns a client without access tokens.
    pub fn new(base: &str, trust: &Trust) -> anyhow::Result<Self> {
        let http = trust
            .client()?
            .user_agent(concat!("stead-runner/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(5))
            .tcp_keepalive(Duration::from_secs(15))
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let last_contact = Arc::new(Mutex::new(Instant::now()));
        Ok(Client { base: base.trim_end_matches('/').into(), http, tokens: None, last_contact })
    }

    /// Adds an access token to each request, except after [`ApiRequest::without_token`].
    pub fn with_tokens(self, tokens: Tokens) -> Self {
        Client { tokens: Some(Arc::new(tokens)), ..self }
    }

    /// Returns the HTTP client, so that registry calls share its connections.
    pub fn http(&self) -> reqwest::Client {
        self.http.clone()
    }

    /// Returns the base URL of the server, without a trailing slash.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns the time since the last successful call, or since the creation of the client. The
    /// value grows while the server is unreachable or rejects the runner.
    pub fn time_since_contact(&self) -> Duration {
        self.last_contact.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Sends the request until the response is conclusive. Drop the future to stop.
    pub async fn send<T: Response>(
        &self,
        request: &ApiRequest,
    ) -> Result<ApiResponse<T>, ServerRejection> {
        self.send_with(request, &mut Backoff::new(request.cap)).await
    }

    /// Sends the request as [`Client::send`] does, with an existing back-off.
    async fn send_with<T: Response>(
        &self,
        request: &ApiRequest,
        backoff: &mut Backoff,
    ) -> Result<ApiResponse<T>, ServerRejection> {
        self.send_until_conclusive(|| Ok(request.clone()), backoff).await
    }

    /// Sends a request whose signature expires soon. Each attempt builds and signs the request
    /// again.
    pub async fn send_signed<T: Response>(
        &self,
        make: impl Fn() -> anyhow::Result<ApiRequest>,
    ) -> Result<ApiResponse<T>, ServerRejection> {
        let cap = make().map_err(|error| token::local_error(&error))?.cap;
        self.send_until_conclusive(make, &mut Backoff::new(cap)).await
    }

    async fn send_until_conclusive<T: Response>(
        &self,
        make: impl Fn() -> anyhow::Result<ApiRequest>,
        backoff: &mut Backoff,
    ) -> Result<ApiResponse<T>, ServerRejection> {
        let mut request = make().map_err(|error| token::local_error(&error))?;
        let mut token_renewed = false;
        loop {
            let inconclusive = match self.once(&request, T::BYTES).await {
                Ok(reply) => match response::classify::<T>(reply) {
                    response::Classified::Clear(response) => {
                        *self.last_contact.lock().unwrap_or_else(PoisonError::into_inner) =
                            Instant::now();
                        return Ok(response);
                    }
                    response::Classified::Refused(rejection)
                        if rejection.status == 401 && request.with_token && !token_renewed =>
                    {
                        token_renewed = true;
                        self.forget_token(&rejection).await;
                        continue;
                    }
                    // The token belongs to a former session, but requests of an execution stay
                    // valid in the next session. Either this runner is opening a new session, or
                    // another agent uses its identity. In the second case the server rejects the
                    // next poll, and this process exits.
                    response::Classified::Refused(rejection)
                        if rejection.is_of_a_former_session() && request.outlives() =>
                    {
                        response::Inconclusive { why: rejection.to_string(), after: None }
                    }
                    response::Classified::Refused(rejection) => return Err(rejection),
                    response::Classified::Unclear(inconclusive) => inconclusive,
                },
                Err(SendError::Refused(rejection)) => return Err(rejection),
                Err(SendError::Rejected(rejected)) => {
                    response::Inconclusive { why: rejected.to_string(), after: None }
                }
                Err(SendError::Network(error)) => {
                    response::Inconclusive { why: chain(&error), after: None }
                }
            };
            let pause = backoff.next(inconclusive.after);
            let retry_ms = pause.as_millis();
            let (method, path, why) = (&request.method, &request.path, &inconclusive.why);
            if backoff.tries() > 3 {
                warn!(%method, %path, %why, retry_ms, "No conclusive response from the server, retrying");
            } else {
                debug!(%method, %path, %why, retry_ms, "No conclusive response from the server, retrying");
            }
            tokio::time::sleep(pause).await;
            request = make().map_err(|error| token::local_error(&error))?;
        }
    }

    /// Uses the first token of a new session.
    pub async fn opened(&self, opened: &SessionOpened) {
        if let Some(tokens) = &self.tokens {
            tokens.opened(opened).await;
        }
    }

    /// Corrects the estimated server clock, if the rejection contains a plausible server time.
    pub fn correct_clock(&self, rejection: &ServerRejection) {
        let server_time = rejection.problem.more.get("server_time").and_then(|time| time.as_str());
        if let Some(Ok(time)) = server_time.map(str::parse)
            && limits::clock("server_time", time).is_ok()
        {
            crate::host::set_server_time(time);
        }
    }

    async fn forget_token(&self, rejection: &ServerRejection) {
        self.correct_clock(rejection);
        if let Some(tokens) = &self.tokens {
            tokens.forget().await;
        }
    }

    async fn once(
        &self,
        request: &ApiRequest,
        limit: usize,
    ) -> Result<response::RawResponse, SendError> {
        let mut builder = self
            .http
            .request(request.method.clone(), format!("{}{}", self.base, request.path))
            .headers(request.headers.clone())
            .timeout(request.wait + REQUEST_TIMEOUT);
        if !request.body.is_empty() || request.method != Method::GET {
            builder = builder.body(request.body.clone());
        }
        if let Some(tokens) = self.tokens.as_ref().filter(|_| request.with_token) {
            let token = Box::pin(tokens.current(self)).await.map_err(SendError::Refused)?;
            builder = builder.header(AUTHORIZATION, format!("Bearer {}", token.as_str()));
        }
        let response = builder.send().await.map_err(SendError::Network)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let limit = if status.is_success() { limit } else { limits::PROBLEM_BYTES };
        let body = body(response, limit).await?;
        Ok(response::RawResponse { status, headers, body })
    }
}

/// Reads the body. Fails if the body has more than `limit` bytes, regardless of the announced
/// length.
async fn body(mut response: reqwest::Response, limit: usize) -> Result<bytes::Bytes, SendError> {
    let too_large = || SendError::Rejected(InvalidResponse::TooLarge { limit });
    let mut body = bytes::BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(SendError::Network)? {
        if chunk.len() > limit - body.len() {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

enum SendError {
    Network(reqwest::Error),
    Rejected(InvalidResponse),
    Refused(ServerRejection),
}

/// Returns an error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Returns the seconds in `Retry-After`. A date is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Returns true if the client retries after this status, regardless of the body. The caller makes
/// an exception for 507.
fn is_retryable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429) || status.is_server_error()
}

#[cfg(test)]
pub(crate) mod scripted;
#[cfg(test)]
mod tests;
