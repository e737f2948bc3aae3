//! `Idempotency-Key`: a change that is sent twice is made once. Both requests get the same
//! response, except for secrets.
//!
//! The commit of the change also writes the key, so neither exists without the other. After the
//! commit, a separate task stores the response without secrets, even if the client disconnects. If
//! the server or the database fails before the response is stored, the response is recovered from
//! the log.
mod recover;

use std::time::Duration;

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{MatchedPath, Request, State},
    http::{HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use event_log::IdempotencyKey;
use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::Row;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::MAX_BUNDLE_BYTES;
use crate::{
    extract::{Caller, is_too_long},
    problem::{Code, Problem},
    state::App,
    write_behind::idempotent_responses::{self, StoredResponse},
};

/// Request header with the key.
const KEY_HEADER: &str = "idempotency-key";
/// Response header that marks a stored response.
const REPLAYED_HEADER: &str = "idempotency-replayed";
/// Maximum length of a key.
const MAX_KEY_BYTES: usize = 128;
/// Maximum size of a body that is not a bundle.
const MAX_BODY_BYTES: usize = 2 << 20;
/// Members of a response that are never stored.
const SECRET_MEMBERS: [&str; 3] = ["token", "enrolment", "secret"];
/// Timeout of a repeated request that waits for the first response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval at which a waiting request looks for the first response.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Middleware that answers a repeated change with the first response.
pub(crate) async fn idempotent(
    State(app): State<App>,
    who: Caller,
    route: MatchedPath,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let Some(key) = key_of(&request)? else { return Ok(next.run(request).await) };
    let (mut parts, body) = request.into_parts();
    let limit = if route.as_str().ends_with("/sync") { MAX_BUNDLE_BYTES } else { MAX_BODY_BYTES };
    let bytes = to_bytes(body, limit).await.map_err(|reason| match is_too_long(&reason) {
        true => Problem::new(
            Code::TooLarge,
            format!("cannot read the body: it is larger than {limit} bytes; send a smaller body"),
        ),
        false => Problem::new(
            Code::BadRequest,
            "cannot read the body: it is incomplete; send the request again",
        ),
    })?;
    let mut hash = Sha256::new();
    hash.update(format!("{} {}\n", parts.method, parts.uri));
    hash.update(&bytes);
    let principal = who.principal.to_string();
    let key =
        IdempotencyKey { principal, key, request_hash: hash.finalize().into(), response: None };
    if let Some(response) =
        earlier_response(&app, &key, route.as_str(), LookupTime::BeforeHandler).await?
    {
        return Ok(response);
    }
    parts.extensions.insert(key.clone());
    let request = Request::from_parts(parts, Body::from(bytes));
    let done = async move {
        let response = next.run(request).await;
        if response.status().is_success() {
            return Ok(store_response(&app, &key, response).await);
        }
        // Returns the response of a concurrent request with the same key, if that request
        // succeeded. The failed request may also have been committed, so its own commit is looked
        // up, too. If that commit has no events and no stored response, nothing changed, so the
        // failure is returned.
        let did = earlier_response(&app, &key, route.as_str(), LookupTime::AfterFailure).await?;
        Ok(did.unwrap_or(response))
    };
    #[expect(clippy::disallowed_methods, reason = "the task is awaited here")]
    tokio::spawn(done.in_current_span()).await.map_err(Problem::internal)?
}

fn key_of(request: &Request) -> Result<Option<String>, Problem> {
    if matches!(request.method(), &Method::GET | &Method::HEAD | &Method::OPTIONS) {
        return Ok(None);
    }
    let Some(value) = request.headers().get(KEY_HEADER) else { return Ok(None) };
    let key = value.to_str().unwrap_or_default();
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        let detail = format!(
            "invalid header {KEY_HEADER}: it must have 1 to {MAX_KEY_BYTES} visible characters"
        );
        return Err(Problem::new(Code::BadRequest, detail));
    }
    Ok(Some(key.to_owned()))
}

/// Time at which an earlier response is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LookupTime {
    BeforeHandler,
    AfterFailure,
}

/// Returns the response to the first request, if that request was committed. Waits until the
/// response is stored. After `RESPONSE_TIMEOUT`, recovers the response from the log.
async fn earlier_response(
    app: &App,
    key: &IdempotencyKey,
    route: &str,
    since: LookupTime,
) -> Result<Option<Response>, Problem> {
    let start = Instant::now();
    let (first, last) = loop {
        let row = sqlx::query(
            "select request_hash, first_position, last_position, response::text as response \
             from log_command where principal = $1 and idempotency_key = $2 and expires_at > $3",
        )
        .bind(&key.principal)
        .bind(&key.key)
        .bind(app.now())
        .fetch_optional(&app.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let hash: Vec<u8> = row.try_get("request_hash")?;
        if hash != key.request_hash {
            let detail = format!(
                "idempotency key {:?} rejected: it was used for another request; use a new key",
                key.key
            );
            return Err(Problem::new(Code::IdempotencyMismatch, detail));
        }
        if let Some(response) = row.try_get::<Option<String>, _>("response")? {
            return Ok(Some(replayed_response(response)));
        }
        if start.elapsed() >= RESPONSE_TIMEOUT {
            let position = |name| row.try_get::<i64, _>(name).map(i64::unsigned_abs);
            break (position("first_position")?, position("last_position")?);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    if since == LookupTime::AfterFailure && first > last {
        return Ok(None);
    }
    let recovered = recover::recover_response(app, route, first, last).await?;
    Ok(Some(replayed_response(recovered.to_string())))
}

fn replayed_response(stored: String) -> Response {
    let mut response = ([(header::CONTENT_TYPE, "application/json")], stored).into_response();
    response.headers_mut().insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
    response
}

/// Stores a response for repeated requests. If that fails, the caller still gets the response,
/// because the change is committed.
async fn store_response(app: &App, key: &IdempotencyKey, response: Response) -> Response {
    // Does not store a progress stream, because it may be endless. The caller can safely repeat
    // such a request.
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind.is_none_or(|kind| !kind.starts_with("application/json")) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let bytes: Bytes = match to_bytes(body, usize::MAX).await {
        Ok(bytes) => bytes,
        Err(why) => return Problem::internal(why).into_response(),
    };
    if let Ok(Value::Object(mut members)) = serde_json::from_slice(&bytes) {
        for secret in SECRET_MEMBERS {
            members.remove(secret);
        }
        let (principal, key) = (key.principal.clone(), key.key.clone());
        let body = Value::Object(members).to_string();
        let stored = StoredResponse { principal, key, body };
        idempotent_responses::store(&app.responses, &app.pool, stored).await;
    }
    Response::from_parts(parts, Body::from(bytes))
}
