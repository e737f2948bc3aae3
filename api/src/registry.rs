//! Storage of the vendor's artifacts: OCI layouts in the data directory.
//!
//! ```text
//! DATA/registry/<app>/<component>/    one OCI image layout per component, readable by any OCI tool
//!   oci-layout  index.json  blobs/sha256/…
//! DATA/registry/.uploads/             incomplete uploads; a start deletes abandoned ones
//! ```
mod manifests;
mod repository;
mod store;

pub(crate) use self::{
    manifests::Manifests,
    repository::Repository,
    store::{ArtifactError, Registry},
};
