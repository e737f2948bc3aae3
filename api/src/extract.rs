//! What handlers take apart: as axum does it, but a request that cannot be read is a [`Problem`] that
//! names the place.
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

use crate::problem::{Code, Problem};

/// The body as JSON of one shape.
pub struct Json<T>(pub T);

/// The body as it came.
pub struct Raw(pub Bytes);

/// The variables of the path.
pub struct Path<T>(pub T);

/// The query of the URL.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let json = kind.is_some_and(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind == "application/json" || kind.ends_with("+json")
        });
        if !json {
            let detail = "send the body as application/json";
            return Err(Problem::new(Code::UnsupportedMediaType, detail));
        }
        let bytes = Bytes::from_request(request, state).await.map_err(too_long_or_cut)?;
        read(&bytes).map(Json)
    }
}

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Bytes::from_request(request, state).await.map(Raw).map_err(too_long_or_cut)
    }
}

/// After which event a listener that was there before goes on.
pub struct LastEvent(pub Option<u64>);

impl<S: Send + Sync> FromRequestParts<S> for LastEvent {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(id) = parts.headers.get("last-event-id") else { return Ok(LastEvent(None)) };
        // To go on from somewhere else would be a gap that the listener cannot see.
        let number = id.to_str().ok().and_then(|id| id.parse().ok());
        let refused = || Problem::new(Code::BadRequest, "Last-Event-ID takes the id of an event");
        number.map(|id| LastEvent(Some(id))).ok_or_else(refused)
    }
}

/// A call whose answer is not kept: to repeat it is to do it again, and so it takes no key.
pub struct Unrepeatable;

impl<S: Send + Sync> FromRequestParts<S> for Unrepeatable {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if parts.headers.contains_key("idempotency-key") {
            let detail = "this call takes no Idempotency-Key: it may be repeated as it is";
            return Err(Problem::new(Code::BadRequest, detail));
        }
        Ok(Unrepeatable)
    }
}

/// JSON bytes as one shape; what does not fit is named by line and column.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let said = error.to_string();
        let message = said.split(" at line ").next().unwrap_or_default().to_string();
        let mut problem =
            Problem::new(Code::InvalidJson, format!("line {line}, column {column}: {message}"));
        problem.errors.push(FieldProblem {
            line: u32::try_from(line).ok(),
            column: u32::try_from(column).ok(),
            message,
            ..FieldProblem::default()
        });
        problem
    })
}

/// Whether a body was refused for its length, and not because it broke off.
pub fn is_too_long(reason: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(reason);
    while let Some(why) = cause {
        if why.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = why.source();
    }
    false
}

fn too_long_or_cut(rejection: BytesRejection) -> Problem {
    if rejection.status() == 413 {
        Problem::new(Code::TooLarge, "the body is longer than this call takes")
    } else {
        Problem::new(Code::BadRequest, "the body ended early")
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Path::from_request_parts(parts, state).await;
        // A path that names nothing is a thing that does not exist.
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
    async fn a_body_that_broke_off_is_not_one_that_is_too_long() {
        let long = axum::body::to_bytes(axum::body::Body::from("abc"), 2).await.unwrap_err();
        assert!(is_too_long(&long));
        let cut = futures::stream::iter([Ok("a"), Err(std::io::Error::other("gone"))]);
        let cut = axum::body::to_bytes(axum::body::Body::from_stream(cut), 2).await.unwrap_err();
        assert!(!is_too_long(&cut));
    }

    #[test]
    fn what_is_wrong_with_json_is_named_by_its_place() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Ask {
            #[expect(dead_code, reason = "only the shape is tested")]
            name: String,
        }
        let problem = read::<Ask>(b"{\n  \"nam\": \"x\"}").unwrap_err();
        assert_eq!(problem.code, Code::InvalidJson);
        assert_eq!((problem.errors[0].line, problem.errors[0].column), (Some(2), Some(7)));
        assert_eq!(problem.errors[0].message, "unknown field `nam`, expected `name`");
    }
}
