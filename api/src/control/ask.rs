//! Who asks for a change, and what the log will say beside it.
use axum::{
    extract::{FromRequestParts, MatchedPath},
    http::{HeaderMap, header, request::Parts},
};
use event_log::{CommandKey, Meta};
use schemas::problem::FieldProblem;
use ulid::Ulid;

use crate::{
    auth::Who,
    execute::{Call, Done},
    problem::{Code, Problem},
    state::App,
};

/// The longest text that a person writes beside a change.
const REASON_CHARACTERS: usize = 2000;
/// The longest name of a calling program that is kept.
const CLIENT_BYTES: usize = 120;

/// A change that somebody asks for.
pub struct Ask {
    /// Who.
    pub who: Who,
    /// What goes with it into the log.
    pub call: Call,
}

impl FromRequestParts<App> for Ask {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let who = Who::from_request_parts(parts, app).await?;
        let mut meta = Meta::new(who.actor.clone(), Ulid::new().to_string());
        let route = parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str);
        meta.route = route.map(|route| format!("{} {route}", parts.method));
        meta.client = text(&parts.headers, header::USER_AGENT.as_str(), CLIENT_BYTES);
        meta.traceparent = text(&parts.headers, "traceparent", 55).filter(|t| is_traceparent(t));
        let mut call = Call::of(meta);
        call.key = parts.extensions.get::<CommandKey>().cloned();
        Ok(Ask { who, call })
    }
}

/// A header as text for the log; a longer one is cut.
fn text(headers: &HeaderMap, name: &str, bytes: usize) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.chars().take(bytes).collect::<String>()).filter(|value| !value.is_empty())
}

/// `00-<32 digits>-<16 digits>-<2 digits>`; anything else is not kept.
fn is_traceparent(value: &str) -> bool {
    let parts: Vec<_> = value.split('-').map(str::len).collect();
    parts == [2, 32, 16, 2] && value.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

/// The wire's word for a use case that has nothing else to say.
pub fn done<T>(done: &Done<T>) -> schemas::control::Done {
    schemas::control::Done { position: done.position, changed: done.events > 0 }
}

/// A reason that must be given.
pub fn required(reason: &str) -> Result<String, Problem> {
    if reason.trim().is_empty() {
        return Err(field("reason", "is empty", "say why; it is kept in the log"));
    }
    optional(Some(reason.to_owned())).map(Option::unwrap_or_default)
}

/// A reason that may be given.
pub fn optional(reason: Option<String>) -> Result<Option<String>, Problem> {
    if reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARACTERS) {
        return Err(field("reason", "is longer than 2,000 characters", "say it shorter"));
    }
    Ok(reason.filter(|reason| !reason.trim().is_empty()))
}

/// One field that is wrong.
pub fn field(name: &str, message: &str, remedy: &str) -> Problem {
    let error = FieldProblem {
        field: Some(name.into()),
        message: format!("{name} {message}"),
        remedy: Some(remedy.into()),
        ..FieldProblem::default()
    };
    Problem { errors: vec![error], ..Problem::new(Code::Invalid, format!("{name} {message}")) }
}
