//! The vendor's artifacts: OCI layouts in the data directory, and the endpoint that runners use.
//!
//! ```text
//! DATA/registry/<app>/<component>/    one OCI image layout per component: any OCI tool can read it
//!   oci-layout  index.json  blobs/sha256/…
//! DATA/registry/.uploads/             what is arriving; emptied at every start
//!
//! GET  /v2/<app>/<component>/manifests/<digest>      exactly what the job's manifest names
//! GET  /v2/<app>/<component>/blobs/<digest>          what those manifests name; a build's source
//! POST /v2/<app>/<component>/blobs/uploads/          a build job, into its own component's repository
//! PUT  …/blobs/uploads/<id>?digest=…                 the whole blob in one body
//! PUT  /v2/<app>/<component>/manifests/<digest>      when everything that it names is there
//! ```
//!
//! Everything else does not exist: a job that asks for another's artifact gets the same 404 as for one that
//! nobody ever made.
mod answer;
mod image;
mod layout;
mod permit;
mod pull;
mod push;
mod repository;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    routing::{get, post, put},
};

pub use self::{
    image::{Descriptor, Image},
    layout::{ArtifactError, Registry},
    permit::Manifests,
    repository::Repository,
};
use crate::state::App;

/// The endpoint, behind the runners' door.
pub fn routes() -> Router<App> {
    let manifests = "/v2/{app}/{component}/manifests/{reference}";
    Router::new()
        .route("/v2/", get(pull::base))
        .route(manifests, get(pull::manifest).put(push::manifest))
        .route("/v2/{app}/{component}/blobs/{digest}", get(pull::blob))
        .route("/v2/{app}/{component}/blobs/uploads/", post(push::begin))
        .route("/v2/{app}/{component}/blobs/uploads/{upload}", put(push::finish))
        // Blobs are measured while they arrive, manifests by their handler.
        .layer(DefaultBodyLimit::disable())
}

#[cfg(test)]
mod tests;
