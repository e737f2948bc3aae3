//! The two OpenAPI documents and a page that shows them, and the schemas of app directories.
//! Everything is inside the binary, and none of it is a secret: whoever reads it needs no token.
use axum::{
    Json, Router,
    extract::Path,
    http::header,
    response::{Html, IntoResponse},
    routing::get,
};
use utoipa::openapi::OpenApi;

use crate::{
    problem::{Code, Problem},
    state::App,
};

const PAGE: &str = include_str!("docs.html");

/// `/docs` and `/openapi.json` of one API.
pub fn routes(document: OpenApi) -> Router<App> {
    Router::new()
        .route("/openapi.json", get(move || async move { Json(document) }))
        .route("/docs", get(page))
}

/// `/v1/schemas/app-config/{kind}`: what an editor loads for the `#:schema` of a file.
pub fn schemas() -> Router<App> {
    Router::new().route("/v1/schemas/app-config/{kind}", get(schema))
}

async fn schema(Path(kind): Path<String>) -> Result<impl IntoResponse, Problem> {
    let kind = kind.strip_suffix(".json").unwrap_or(&kind);
    let known = app_config::schema(kind);
    let text = known.ok_or_else(|| {
        let kinds: Vec<&str> = app_config::SCHEMAS.iter().map(|(kind, _)| *kind).collect();
        let detail = format!("there is no schema {kind:?}; there are {}", kinds.join(", "));
        Problem::new(Code::NotFound, detail)
    })?;
    Ok(([(header::CONTENT_TYPE, "application/schema+json")], text))
}

async fn page() -> impl IntoResponse {
    // Nothing but what is in the page itself may run or load.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                  connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(PAGE))
}
