//! Calls of a job for the encrypted state of its component on the server.
use std::time::Duration;

use reqwest::{
    StatusCode,
    header::{HeaderMap, IF_NONE_MATCH},
};
use schemas::{
    problem::Problem,
    runner::{STATE_CIPHERTEXT_BYTES, STATE_VERSION, StateHead, StateUpload},
};

/// Time for a response of the server.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes that a slow connection transfers in a second.
const BYTES_PER_SECOND: u64 = 4 << 20;

/// Server's store of the state of one component.
#[derive(Clone)]
pub struct Remote {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Newest version on the server.
#[derive(Debug)]
pub(super) enum Newest {
    /// The server has no state of the component.
    None,
    /// The server has the version of the request.
    Same(StateHead),
    Other(StateHead, Vec<u8>),
}

/// Reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemoteError {
    /// The server did not respond, or cannot process the call now.
    #[error("the server did not respond: {0}")]
    Unreachable(String),
    /// The server refuses the state.
    #[error("the server rejected the state: {0}")]
    Rejected(String),
}

impl Remote {
    pub fn new(http: reqwest::Client, base: &str, token: &str, component: &str) -> Self {
        let url = format!("{base}/runner/v1/state/{component}");
        Remote { http, url, token: token.into() }
    }

    /// Stores a version. Returns the newest version afterwards.
    pub(super) async fn put(
        &self,
        upload: &StateUpload,
        ciphertext: bytes::Bytes,
    ) -> Result<StateHead, RemoteError> {
        let version = serde_json::to_string(upload).map_err(unreachable)?;
        let request = self
            .http
            .put(&self.url)
            .bearer_auth(&self.token)
            .header(STATE_VERSION, version)
            .timeout(timeout(ciphertext.len() as u64))
            .body(ciphertext);
        let response = check(request.send().await.map_err(unreachable)?).await?;
        let body = response.bytes().await.map_err(unreachable)?;
        serde_json::from_slice(&body).map_err(unreachable)
    }

    /// Returns the newest version, without its content if it has this digest.
    pub(super) async fn newest(&self, known: Option<&str>) -> Result<Newest, RemoteError> {
        let mut request = self
            .http
            .get(&self.url)
            .bearer_auth(&self.token)
            .timeout(timeout(STATE_CIPHERTEXT_BYTES));
        if let Some(known) = known {
            request = request.header(IF_NONE_MATCH, format!("\"{known}\""));
        }
        let response = request.send().await.map_err(unreachable)?;
        // A server of an earlier version has no states.
        if matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_FOUND) {
            return Ok(Newest::None);
        }
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(Newest::Same(head(response.headers())?));
        }
        let mut response = check(response).await?;
        let head = head(response.headers())?;
        let mut ciphertext = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if (ciphertext.len() + chunk.len()) as u64 > STATE_CIPHERTEXT_BYTES {
                return Err(RemoteError::Rejected("it is larger than 100 MiB".into()));
            }
            ciphertext.extend_from_slice(&chunk);
        }
        Ok(Newest::Other(head, ciphertext))
    }
}

fn timeout(bytes: u64) -> Duration {
    TIMEOUT + Duration::from_secs(bytes / BYTES_PER_SECOND)
}

fn head(headers: &HeaderMap) -> Result<StateHead, RemoteError> {
    let header = headers.get(STATE_VERSION).and_then(|value| value.to_str().ok());
    let head = header.and_then(|json| serde_json::from_str::<StateHead>(json).ok());
    let head = head.filter(StateHead::is_valid);
    head.ok_or_else(|| RemoteError::Unreachable("its response names no version".into()))
}

/// Returns the response if it is a success. A rejection with a problem is final, except those that
/// another attempt or another token can change.
async fn check(response: reqwest::Response) -> Result<reqwest::Response, RemoteError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.bytes().await.unwrap_or_default();
    let problem = serde_json::from_slice::<Problem>(&body).ok();
    let is_final = matches!(status.as_u16(), 400 | 403 | 409 | 412 | 413 | 422);
    Err(match problem {
        Some(problem) if is_final => RemoteError::Rejected(problem.to_string()),
        Some(problem) => RemoteError::Unreachable(problem.to_string()),
        // The response of a proxy.
        None => RemoteError::Unreachable(status.to_string()),
    })
}

fn unreachable(error: impl std::error::Error) -> RemoteError {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let text = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
    RemoteError::Unreachable(text)
}
