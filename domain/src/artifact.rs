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
    /// Digest of the OCI manifest of the artifact, or of the index of an image with several
    /// platforms.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Total size in bytes: the OCI manifest and the blobs that it references. The server measures
    /// the size and ignores the runner's value.
    pub size_bytes: u64,
    /// Image in the upstream registry that the artifact is a copy of. Absent for other artifacts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
}

/// Image in an upstream registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Upstream {
    /// Repository with its registry, for example `docker.io/library/nginx`.
    pub repository: String,
    /// Tag that the build resolved. Absent for an image that the config names by digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Digest of the image or of the index. With several platforms, it differs from the digest of
    /// an artifact that has fewer platforms.
    #[schema(value_type = String)]
    pub digest: Digest,
}
