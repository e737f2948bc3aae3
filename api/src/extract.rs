//! Extractors for handlers. Unlike the extractors of axum, they reject a request with a
//! [`Problem`].
mod caller;
mod runner_caller;

use axum::{
    extract::{
        FromRequest, FromRequestParts, Request,
        rejection::{BytesRejection, PathRejection, QueryRejection},
    },
    http::{header, request::Parts},
};
use bytes::Bytes;
use schemas::problem::FieldProblem;
use serde::de::DeserializeOwned;

pub(crate) use self::{
    caller::{Caller, guard, identify, require_current},
    runner_caller::{JobCaller, RunnerCaller, revoked},
};
use crate::problem::{Code, Problem};

pub(crate) struct Json<T>(pub T);

pub(crate) struct Raw(pub Bytes);

pub(crate) struct Path<T>(pub T);

pub(crate) struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let json = kind.is_some_and(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind == "application/json" || kind.ends_with("+json")
        });
        if !json {
            let detail =
                "cannot read the body: its content type is not JSON; send application/json";
            return Err(Problem::new(Code::UnsupportedMediaType, detail));
        }
        let bytes = Bytes::from_request(request, state).await.map_err(body_problem)?;
        parse_json(&bytes).map(Json)
    }
}

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Bytes::from_request(request, state).await.map(Raw).map_err(body_problem)
    }
}

/// Id of the last event that a reconnecting client received. `None` on the first connection.
pub(crate) struct LastEvent(pub Option<u64>);

impl<S: Send + Sync> FromRequestParts<S> for LastEvent {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(id) = parts.headers.get("last-event-id") else { return Ok(LastEvent(None)) };
        // An invalid id is rejected, because resuming elsewhere would hide a gap from the client.
        let number = id.to_str().ok().and_then(|id| id.parse().ok());
        let rejection = || {
            Problem::new(
                Code::BadRequest,
                "invalid Last-Event-ID: it is not a number; send the id of an event",
            )
        };
        number.map(|id| LastEvent(Some(id))).ok_or_else(rejection)
    }
}

/// Request whose response is not stored. The request accepts no idempotency key, because a repeated
/// request runs again.
pub(crate) struct NoIdempotencyKey;

impl<S: Send + Sync> FromRequestParts<S> for NoIdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if parts.headers.contains_key("idempotency-key") {
            let detail =
                "request rejected: it accepts no Idempotency-Key; repeat it without the header";
            return Err(Problem::new(Code::BadRequest, detail));
        }
        Ok(NoIdempotencyKey)
    }
}

/// Parses JSON. An error states its line and column.
pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let message = text.split(" at line ").next().unwrap_or_default().to_string();
        let mut problem = Problem::new(
            Code::InvalidJson,
            format!("cannot parse the body: line {line}, column {column}: {message}"),
        );
        problem.errors.push(FieldProblem {
            line: u32::try_from(line).ok(),
            column: u32::try_from(column).ok(),
            message,
            ..FieldProblem::default()
        });
        problem
    })
}

/// Returns true if the body exceeded its limit.
pub(crate) fn is_too_long(reason: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(reason);
    while let Some(why) = cause {
        if why.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = why.source();
    }
    false
}

fn body_problem(rejection: BytesRejection) -> Problem {
    if rejection.status() == 413 {
        Problem::new(
            Code::TooLarge,
            "cannot read the body: it exceeds the size limit of this request; send a smaller body",
        )
    } else {
        Problem::new(
            Code::BadRequest,
            "cannot read the body: it is incomplete; send the request again",
        )
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Path::from_request_parts(parts, state).await;
        // A malformed id in the path names no existing resource.
        read.map(|axum::extract::Path(read)| Path(read))
            .map_err(|rejection: PathRejection| Problem::new(Code::NotFound, rejection.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Query::from_request_parts(parts, state).await;
        read.map(|axum::extract::Query(read)| Query(read)).map_err(|rejection: QueryRejection| {
            Problem::new(Code::BadRequest, rejection.body_text())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn incomplete_body_is_not_a_too_large_body() {
        let long = axum::body::to_bytes(axum::body::Body::from("abc"), 2).await.unwrap_err();
        assert!(is_too_long(&long));
        let cut = futures::stream::iter([Ok("a"), Err(std::io::Error::other("gone"))]);
        let cut = axum::body::to_bytes(axum::body::Body::from_stream(cut), 2).await.unwrap_err();
        assert!(!is_too_long(&cut));
    }

    #[test]
    fn json_error_has_line_and_column() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Ask {
            #[expect(dead_code, reason = "only the shape is tested")]
            name: String,
        }
        let problem = parse_json::<Ask>(b"{\n  \"nam\": \"x\"}").unwrap_err();
        assert_eq!(problem.code, Code::InvalidJson);
        assert_eq!((problem.errors[0].line, problem.errors[0].column), (Some(2), Some(7)));
        assert_eq!(problem.errors[0].message, "unknown field `nam`, expected `name`");
    }
}
