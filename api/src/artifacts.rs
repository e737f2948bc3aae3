//! The vendor's artifacts: OCI layouts in the data directory, and the endpoint for runners.
//!
//! ```text
//! DATA/registry/<app>/<component>/    one OCI image layout per component, readable by any OCI tool
//!   oci-layout  index.json  blobs/sha256/…
//! DATA/registry/.uploads/             incomplete uploads, deleted at every start
//!
//! GET  /v2/<app>/<component>/manifests/<digest>      image manifests that the job's manifest names
//! GET  /v2/<app>/<component>/blobs/<digest>          their blobs, and the source of a build
//! POST /v2/<app>/<component>/blobs/uploads/          for a build job, in its component's repository
//! PUT  …/blobs/uploads/<id>?digest=…                 the complete blob in one body
//! PUT  /v2/<app>/<component>/manifests/<digest>      after all blobs that it names
//! ```
//!
//! Everything else returns 404: a job gets the same response for another job's artifact as for a
//! missing one.
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

/// Routes of the registry, on the Runner API listener.
pub fn routes() -> Router<App> {
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
