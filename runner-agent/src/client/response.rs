//! Classification of HTTP responses.
use std::time::Duration;

use super::{
    ServerRejection, is_retryable,
    limits::{self, Response},
    retry_after,
};
use bytes::Bytes;
use reqwest::{
    StatusCode,
    header::{HeaderMap, RANGE},
};
use schemas::problem::Problem;

/// HTTP response as received.
pub struct RawResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Successful response.
#[derive(Debug)]
pub struct ApiResponse<T> {
    /// HTTP status, from 200 to 299.
    pub status: u16,
    pub headers: HeaderMap,
    /// Body; absent with 204.
    pub body: Option<T>,
}

impl<T> ApiResponse<T> {
    /// Returns a header as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.headers.get(name)?.to_str().ok()?.parse().ok()
    }
}

pub enum Classified<T> {
    Clear(ApiResponse<T>),
    Refused(ServerRejection),
    Unclear(Inconclusive),
}

/// Attempt without a conclusive response. The client sends the request again.
pub struct Inconclusive {
    pub why: String,
    pub after: Option<Duration>,
}

pub fn classify<T: Response>(reply: RawResponse) -> Classified<T> {
    let RawResponse { status, headers, body } = reply;
    let inconclusive = |why: String, headers: &HeaderMap| {
        Classified::Unclear(Inconclusive {
            why: format!("{status}: {why}"),
            after: retry_after(headers),
        })
    };
    // 507 is conclusive although it is a 5xx status: the log quota is used up.
    if is_retryable(status) && status != StatusCode::INSUFFICIENT_STORAGE {
        let problem_document = serde_json::from_slice::<Problem>(&body);
        return inconclusive(
            problem_document.map_or("no problem document".into(), |problem| problem.to_string()),
            &headers,
        );
    }
    if status == StatusCode::NO_CONTENT {
        return Classified::Clear(ApiResponse { status: 204, headers, body: None });
    }
    if status.is_success() {
        return match limits::read(&body) {
            Ok(body) => Classified::Clear(ApiResponse {
                status: status.as_u16(),
                headers,
                body: Some(body),
            }),
            Err(rejected) => inconclusive(rejected.to_string(), &headers),
        };
    }
    let have = have(&headers);
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) if !problem.code.is_empty() => {
            Classified::Refused(ServerRejection { status: status.as_u16(), problem, have })
        }
        Ok(_) | Err(_) => {
            inconclusive("the body is not a problem document of the Stead API".into(), &headers)
        }
    }
}

/// Returns the number of log bytes that the server has: N + 1 for `Range: bytes=0-N`.
fn have(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=0-")?;
    text.parse::<u64>().ok()?.checked_add(1)
}
