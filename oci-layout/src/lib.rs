//! OCI image layouts on disk: storage of artifacts on the server and on runners.
//!
//! ```text
//! bytes ─▶ BlobWriter ─verify, fsync, rename─▶ blobs/sha256/<hex>
//! manifest ─▶ Layout::add_to_index ─lock─▶ index.json        Layout::prune ─▶ blobs beyond the budget
//!                                                            Layout::renew ─▶ not soon
//! ```
//!
//! The types of manifests and indexes are those of `oci-spec`. [`ArtifactManifest`] also checks the
//! schema version, the media type if there is one, and that every blob has a SHA-256 digest.
//! [`Document`] also reads Docker's manifests and manifest lists.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests create ids and start tasks themselves")
)]

mod blob;
mod digest;
mod document;
mod error;
mod index;
mod layout;
mod manifest;
mod prune;
mod renew;

pub use blob::BlobWriter;
pub use digest::{Hasher, sha256, sha256_file};
pub use document::{Document, ImageList, ListedImage};
pub use error::LayoutError;
pub use index::PlatformIndex;
pub use layout::Layout;
pub use manifest::{ArtifactManifest, Blob, EMPTY, MANIFEST_LIMIT, ManifestError};
pub use oci_spec::image;
pub use prune::Pruning;
