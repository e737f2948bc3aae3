//! Routes of both listeners.
use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::{Method, Uri},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder};
use utoipa_axum::router::OpenApiRouter;

use crate::{
    artifacts, control, docs, extract, ops,
    problem::{Code, Problem},
    runner,
    state::App,
    ui,
};

/// Default limit of a request body, in bytes.
const BODY_BYTES: usize = 2 * 1024 * 1024;

/// Returns the routes of the Control API and its OpenAPI document.
pub(crate) fn control_api() -> (Router<App>, OpenApi) {
    let about = "For users and services. Every request carries `Authorization: Bearer stead_…`; \
                 every error is an RFC 9457 problem with a stable `code`.";
    let mut api = OpenApiRouter::with_openapi(document("Stead Control API", about));
    api = api.merge(control::routes());
    api.split_for_parts()
}

/// Returns the routes of the Runner API and its OpenAPI document.
pub(crate) fn runner_api() -> (Router<App>, OpenApi) {
    let about = "For runners. Every request may be repeated; requests of an execution carry its \
                 id in the header `Execution`.";
    OpenApiRouter::with_openapi(document("Stead Runner API", about))
        .merge(runner::routes())
        .split_for_parts()
}

fn document(title: &str, about: &str) -> OpenApi {
    let info = InfoBuilder::new().title(title).version("1").description(Some(about)).build();
    OpenApiBuilder::new().info(info).build()
}

/// All routes of the Control API listener.
pub(crate) fn control(app: &App) -> Router {
    let (api, document) = control_api();
    // The last layer runs first. Probes and documents are merged after the layers, because requests
    // for them need no token.
    let api = api
        .route_layer(from_fn_with_state(app.clone(), control::idempotent))
        .route_layer(from_fn_with_state(app.clone(), control::wait_for_min_position))
        .route_layer(from_fn_with_state(
            control::AllowedParams::of(&document),
            control::reject_unknown_params,
        ))
        .route_layer(from_fn_with_state(app.clone(), extract::guard))
        .route_layer(from_fn_with_state(app.clone(), extract::require_current));
    let all = api.merge(ui::routes(app)).merge(docs::routes(document)).merge(docs::schemas());
    let all = all.merge(ops::routes(true));
    finish(app, all, &app.config.control_url)
}

/// All routes of the Runner API listener.
pub(crate) fn runner(app: &App) -> Router {
    let (api, document) = runner_api();
    let api = api
        .merge(artifacts::routes())
        .route_layer(from_fn_with_state(app.clone(), extract::require_current));
    let all = api.merge(docs::routes(document)).merge(ops::routes(false));
    finish(app, all, &app.config.runner_url)
}

fn finish(app: &App, routes: Router<App>, url: &str) -> Router {
    let https = url.starts_with("https://");
    routes
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state((app.clone(), https), measure::measure))
        .with_state(app.clone())
}

async fn not_found(uri: Uri) -> Problem {
    Problem::not_found(uri.path())
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(Code::MethodNotAllowed, format!("{} does not support {method}", uri.path()))
}

/// Response to a request whose handler panicked.
pub(crate) fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    Problem::internal("a handler panicked").into_response()
}

pub(crate) mod headers;
#[cfg(test)]
mod matrix;
mod measure;
#[cfg(test)]
mod tests;
