//! Classification of HTTP responses.
use std::time::Duration;

use super::{
    Refused, is_later,
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
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Successful response.
#[derive(Debug)]
pub struct Answer<T> {
    /// 200, 201, 202 or 204.
    pub status: u16,
    /// Headers of the response.
    pub headers: HeaderMap,
    /// Body; absent with 204.
    pub body: Option<T>,
}

impl<T> Answer<T> {
    /// Returns a header as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.headers.get(name)?.to_str().ok()?.parse().ok()
    }
}

/// Classified response.
pub enum Read<T> {
    Clear(Answer<T>),
    Refused(Refused),
    Unclear(Unclear),
}

/// Inconclusive response: the client sends the request again.
pub struct Unclear {
    pub why: String,
    pub after: Option<Duration>,
}

pub fn read<T: Response>(reply: Reply) -> Read<T> {
    let Reply { status, headers, body } = reply;
    let unclear = |why: String, headers: &HeaderMap| {
        Read::Unclear(Unclear { why: format!("{status}: {why}"), after: retry_after(headers) })
    };
    // 507 is conclusive although it is a 5xx status: the log quota is used up.
    if is_later(status) && status != StatusCode::INSUFFICIENT_STORAGE {
        let said = serde_json::from_slice::<Problem>(&body);
        return unclear(said.map_or("later".into(), |problem| problem.to_string()), &headers);
    }
    if status == StatusCode::NO_CONTENT {
        return Read::Clear(Answer { status: 204, headers, body: None });
    }
    if status.is_success() {
        return match limits::read(&body) {
            Ok(body) => Read::Clear(Answer { status: status.as_u16(), headers, body: Some(body) }),
            Err(rejected) => unclear(rejected.to_string(), &headers),
        };
    }
    let have = have(&headers);
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) if !problem.code.is_empty() => {
            Read::Refused(Refused { status: status.as_u16(), problem, have })
        }
        Ok(_) | Err(_) => unclear("the body is not a problem of the Stead API".into(), &headers),
    }
}

/// Returns N + 1 for `Range: bytes=0-N`.
fn have(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=0-")?;
    text.parse::<u64>().ok()?.checked_add(1)
}
