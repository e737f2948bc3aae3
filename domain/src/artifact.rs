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
    /// Digest of its OCI manifest.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Bytes of its OCI manifest and of the blobs that this one names. The server measures them itself.
    pub size_bytes: u64,
}
