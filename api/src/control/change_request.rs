//! Extracts the caller of a change, the metadata of its events, and the idempotency key.
use axum::{
    extract::{FromRequestParts, MatchedPath},
    http::{HeaderMap, header, request::Parts},
};
use event_log::{IdempotencyKey, Meta};

pub(super) use crate::usecases::reason::{
    optional as optional_reason, required as required_reason,
};
use crate::{
    execute::{Call, Done},
    extract::Caller,
    ids,
    problem::Problem,
    state::App,
};

/// Maximum length of the stored `User-Agent`.
const MAX_CLIENT_BYTES: usize = 120;

/// Authenticated request that changes something.
pub(super) struct ChangeRequest {
    pub caller: Caller,
    /// Metadata for the events, and the idempotency key.
    pub call: Call,
}

impl FromRequestParts<App> for ChangeRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let who = Caller::from_request_parts(parts, app).await?;
        let mut meta = Meta::new(who.actor.clone(), ids::new_ulid().to_string());
        let route = parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str);
        meta.route = route.map(|route| format!("{} {route}", parts.method));
        meta.client = header_text(&parts.headers, header::USER_AGENT.as_str(), MAX_CLIENT_BYTES);
        meta.traceparent =
            header_text(&parts.headers, "traceparent", 55).filter(|t| is_traceparent(t));
        let mut call = Call::of(meta);
        call.key = parts.extensions.get::<IdempotencyKey>().cloned();
        Ok(ChangeRequest { caller: who, call })
    }
}

/// Returns a header as text, truncated to `bytes`. Returns `None` if it is missing, empty or not
/// ASCII.
fn header_text(headers: &HeaderMap, name: &str, bytes: usize) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.chars().take(bytes).collect::<String>()).filter(|value| !value.is_empty())
}

/// Returns true for the format `00-<32 hex digits>-<16 hex digits>-<2 hex digits>`. Other values
/// are not stored.
fn is_traceparent(value: &str) -> bool {
    let parts: Vec<_> = value.split('-').map(str::len).collect();
    parts == [2, 32, 16, 2] && value.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

/// Returns the position of a change, and `changed: false` if it recorded no event.
pub(super) fn change_result<T>(done: &Done<T>) -> schemas::control::ChangeResult {
    schemas::control::ChangeResult { position: done.position, changed: done.events > 0 }
}
