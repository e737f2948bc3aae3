//! Endpoint of the registry for runners.
//!
//! ```text
//! GET  /v2/<app>/<component>/manifests/<digest>      image manifests that the job's manifest names
//! GET  /v2/<app>/<component>/blobs/<digest>          their blobs, and the source of a build
//! GET  /v2/stead.plugins/<name>/…                    index, manifests and blobs of the job's plugin
//! POST /v2/<app>/<component>/blobs/uploads/          for a build job, in its component's repository
//! PUT  …/blobs/uploads/<id>?digest=…                 the complete blob in one body
//! PUT  /v2/<app>/<component>/manifests/<digest>      after all blobs that it names
//! ```
//!
//! A job gets the same 404 for another job's artifact as for a missing one.
mod permit;
mod problem;
mod pull;
mod push;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    routing::{get, post, put},
};

use crate::state::App;

/// Routes of the registry, on the Runner API listener.
pub(crate) fn routes() -> Router<App> {
    let manifests = "/v2/{app}/{component}/manifests/{reference}";
    Router::new()
        .route("/v2/", get(pull::base))
        .route(manifests, get(pull::manifest).put(push::manifest))
        .route("/v2/{app}/{component}/blobs/{digest}", get(pull::blob))
        .route("/v2/{app}/{component}/blobs/uploads/", post(push::begin))
        .route("/v2/{app}/{component}/blobs/uploads/{upload}", put(push::finish))
        // Handlers limit the size of blobs and manifests.
        .layer(DefaultBodyLimit::disable())
}

#[cfg(test)]
mod tests;
