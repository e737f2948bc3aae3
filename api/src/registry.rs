//! Storage of the vendor's artifacts: OCI layouts in the data directory.
//!
//! ```text
//! DATA/registry/<app>/<component>/    one OCI image layout per component, readable by any OCI tool
//!   oci-layout  index.json  blobs/sha256/…
//! DATA/registry/.uploads/             incomplete uploads, deleted at every start
//! ```
pub mod image;
pub mod layout;
mod manifests;
mod repository;

pub use self::{
    image::{Descriptor, Image},
    layout::{ArtifactError, Registry},
    manifests::Manifests,
    repository::Repository,
};
