//! OpenAPI documents with an HTML page, and schemas of app directories. All of them are part of the
//! binary and public, so they require no token.
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

/// Routes `/docs` and `/openapi.json` of one API.
pub(crate) fn routes(document: OpenApi) -> Router<App> {
    Router::new()
        .route("/openapi.json", get(move || async move { Json(document) }))
        .route("/docs", get(page))
}

/// Route `/v1/schemas/app-config/{kind}`, which editors load for the `#:schema` of a file.
pub(crate) fn schemas() -> Router<App> {
    Router::new().route("/v1/schemas/app-config/{kind}", get(schema))
}

async fn schema(Path(kind): Path<String>) -> Result<impl IntoResponse, Problem> {
    let kind = kind.strip_suffix(".json").unwrap_or(&kind);
    let known = app_config::schema(kind);
    let text = known.ok_or_else(|| {
        let kinds: Vec<&str> = app_config::SCHEMAS.iter().map(|(kind, _)| *kind).collect();
        let detail = format!("schema {kind:?} does not exist; choose one of {}", kinds.join(", "));
        Problem::new(Code::NotFound, detail)
    })?;
    Ok(([(header::CONTENT_TYPE, "application/schema+json")], text))
}

async fn page() -> impl IntoResponse {
    // Only scripts and styles in the page itself are allowed.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                  connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(PAGE))
}
