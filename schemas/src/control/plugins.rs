//! Published plugins: implementations of component types.
use chrono::{DateTime, Utc};
use domain::digest::Digest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment;

/// Published plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plugin {
    /// Name of the plugin, which is the component type.
    pub name: String,
    /// Published versions, newest first. Config versions that are published from now on use the
    /// first one.
    pub versions: Vec<PluginVersion>,
}

/// Published version of a plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PluginVersion {
    /// Version that the executable reports.
    pub version: String,
    /// Digest of the OCI index.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Total size in bytes: the index, its manifests and their blobs.
    pub size_bytes: u64,
    /// Platforms with an executable, as `os/architecture`.
    pub platforms: Vec<String>,
    /// Public key that signed the executables, 64 hexadecimal digits.
    pub publisher: String,
    /// Time of the publication.
    #[serde(with = "moment")]
    pub published_at: DateTime<Utc>,
}

/// Artifact to publish as a version of a plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishPlugin {
    /// Digest of the OCI index. The index, its manifests and their blobs must be stored.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Public key that signed the executables, 64 hexadecimal digits.
    pub publisher: String,
}

/// Result of a publication.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PluginPublished {
    /// Name of the plugin, which is the component type.
    pub name: String,
    /// Version that the executable reports.
    pub version: String,
    /// Digest of the OCI index.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// Platforms with an executable, as `os/architecture`.
    pub platforms: Vec<String>,
    /// Public key that signed the executables, 64 hexadecimal digits.
    pub publisher: String,
    /// True if this artifact was published before, so nothing changed.
    pub unchanged: bool,
    /// Log position of the change. A read with this `min_position` includes the change.
    pub position: u64,
}
