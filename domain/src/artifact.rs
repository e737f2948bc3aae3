//! Artifacts of builds.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::digest::Digest;

/// Immutable output of a build in the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Artifact {
    /// `<app>/<component>`, as in `/v2/<repository>/manifests/<digest>`.
    pub repository: String,
    /// Digest of the OCI manifest of the artifact.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Total size of the OCI manifest and of the blobs that it references, in bytes. The server
    /// measures the size itself.
    pub size_bytes: u64,
}
