//! Storage of the vendor's artifacts: OCI layouts in the data directory.
//!
//! ```text
//! DATA/registry/<app>/<component>/    one OCI image layout per component, readable by any OCI tool
//!   oci-layout  index.json  blobs/sha256/…
//! DATA/registry/.uploads/             incomplete uploads; a start deletes abandoned ones
//! ```
//!
//! [`Registry::prune`] deletes artifacts that nothing needs. A use of an existing artifact begins with
//! [`Registry::renew`].
//!
//! With a registry of the vendor, build runners push there. The layouts then have the plugins, and
//! the artifacts of earlier builds.
mod contents;
mod error;
mod manifests;
mod repository;
mod retention;
mod store;
mod vendor;

#[cfg(test)]
pub(crate) use self::vendor::fake;
pub(crate) use self::{
    error::ArtifactError,
    manifests::Manifests,
    repository::Repository,
    retention::Retained,
    store::{FoundBlob, Registry, Wanted},
};
