//! Parts of an OCI image manifest that Stead uses. The original bytes are stored unchanged.
use domain::digest::Digest;
use serde::{Deserialize, Serialize};

/// Media type of an image manifest.
pub const IMAGE_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of a layout's index.
pub const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";

/// Reference to content by digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    pub media_type: String,
    pub digest: Digest,
    /// Size in bytes.
    pub size: u64,
    /// Type of the artifact. Only entries of an index have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
}

/// Image manifest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Schema version, always 2.
    pub schema_version: u32,
    /// Media type of the manifest.
    #[serde(default)]
    pub media_type: Option<String>,
    #[serde(default)]
    pub artifact_type: Option<String>,
    pub config: Descriptor,
    #[serde(default)]
    pub layers: Vec<Descriptor>,
}

/// Index of a layout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    pub(super) schema_version: u32,
    pub(super) media_type: String,
    pub(super) manifests: Vec<Descriptor>,
}

impl Default for Index {
    fn default() -> Self {
        Index { schema_version: 2, media_type: INDEX_TYPE.into(), manifests: Vec::new() }
    }
}

impl Image {
    /// Returns the blobs that the manifest references.
    pub fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        std::iter::once(&self.config).chain(&self.layers)
    }
}
