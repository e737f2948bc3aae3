//! Responses of a registry: bodies with a limit, and errors.

use std::{error::Error as _, time::Duration};

use bytes::{Bytes, BytesMut};
use reqwest::{Response, StatusCode, header};
use schemas::sanitize::sanitize;
use serde_json::Value;
use tokio::time::timeout;

use super::{Endpoint, RegistryError};

/// Longest error response that is read, and longest part of it that is shown, in bytes.
const MAX_ERROR: (usize, usize) = (64 << 10, 300);

impl Endpoint {
    /// Returns the error of a response without success.
    pub(crate) async fn refusal(&self, what: &str, response: Response) -> RegistryError {
        let (host, what) = (self.host.clone(), what.to_owned());
        match response.status() {
            StatusCode::NOT_FOUND => RegistryError::Missing { host, what },
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                let detail = format!("status {}", status.as_u16());
                RegistryError::Denied { host, what, detail }
            }
            _ => self.status(&what, response).await,
        }
    }

    pub(crate) async fn status(&self, request: &str, mut response: Response) -> RegistryError {
        let status = response.status().as_u16();
        let detail = problem_text(&mut response).await;
        let hint = match status {
            413 => "; raise the limit of the registry (for the server: --max-blob-bytes)",
            429 => "; wait, or log in to the registry",
            _ => "",
        };
        let detail =
            format!("{}{hint}", detail.map(|text| format!(" ({text})")).unwrap_or_default());
        RegistryError::Status { host: self.host.clone(), request: request.into(), status, detail }
    }
}

/// Reads the text of the first error in an OCI error response.
pub async fn problem_text(response: &mut Response) -> Option<String> {
    let body = body(response, MAX_ERROR.0, Duration::from_secs(5)).await;
    body.ok().and_then(|body| error_text(&body))
}

/// Returns the text of the first error in an OCI error response.
fn error_text(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let first = &body["errors"][0];
    let text = first["message"].as_str().filter(|text| !text.is_empty());
    let text = sanitize(text.or(first["code"].as_str())?);
    Some(text[..text.floor_char_boundary(MAX_ERROR.1)].to_owned())
}

/// Reads a body of at most `limit` bytes.
pub(crate) async fn body(
    response: &mut Response,
    limit: usize,
    idle: Duration,
) -> Result<Bytes, String> {
    let mut body = BytesMut::new();
    loop {
        match timeout(idle, response.chunk()).await {
            Ok(Ok(Some(chunk))) if body.len() + chunk.len() > limit => {
                return Err(format!("it exceeds {limit} bytes"));
            }
            Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
            Ok(Ok(None)) => return Ok(body.freeze()),
            Ok(Err(error)) => return Err(reason(&error)),
            Err(_) => return Err("it stopped sending data".into()),
        }
    }
}

/// Returns the cause of an HTTP error without its URL, which can contain a signature.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    let mut source = error.source();
    let mut last = None;
    while let Some(cause) = source {
        last = Some(cause.to_string());
        source = cause.source();
    }
    last.unwrap_or_else(|| if error.is_timeout() { "timeout" } else { "the request failed" }.into())
}

/// Returns true if the request must be repeated.
pub(crate) fn is_transient(response: &Response) -> bool {
    response.status().is_server_error() || matches!(response.status().as_u16(), 408 | 425 | 429)
}

pub(crate) fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_registry_is_shown_without_control_characters() {
        let body = br#"{"errors":[{"code":"DENIED","message":"no \u001b[31maccess"}]}"#;
        let text = error_text(body).unwrap();
        assert!(!text.contains('\u{1b}') && text.contains("access"), "{text:?}");
        assert_eq!(error_text(b"<html>"), None);
    }
}
