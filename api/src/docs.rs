//! The two OpenAPI documents and a page that shows them. Everything is inside the binary.
use axum::{
    Json, Router,
    http::header,
    response::{Html, IntoResponse},
    routing::get,
};
use utoipa::openapi::OpenApi;

use crate::state::App;

const PAGE: &str = include_str!("docs.html");

/// `/docs` and `/openapi.json` of one API.
pub fn routes(document: OpenApi) -> Router<App> {
    Router::new()
        .route("/openapi.json", get(move || async move { Json(document) }))
        .route("/docs", get(page))
}

async fn page() -> impl IntoResponse {
    // Nothing but what is in the page itself may run or load.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                  connect-src 'self'; base-uri 'none'; form-action 'none'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(PAGE))
}
