use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::digest::Digest;

/// Immutable output of a build in the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Artifact {
    /// Repository in the server's registry, `<app>/<component>`.
    pub repository: String,
    /// Digest of the OCI manifest of the artifact.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Total size in bytes: the OCI manifest and the blobs that it references. The server measures
    /// the size and ignores the runner's value.
    pub size_bytes: u64,
}
