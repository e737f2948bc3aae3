//! What an OCI image manifest says, as far as we need it. The bytes themselves are kept as they came.
use domain::digest::Digest;
use serde::{Deserialize, Serialize};

/// Media type of an image manifest.
pub const IMAGE_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of a layout's index.
pub const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";

/// One thing by digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    pub media_type: String,
    /// Which bytes.
    pub digest: Digest,
    /// How many.
    pub size: u64,
    /// What the artifact is, in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
}

/// An image manifest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// 2.
    pub schema_version: u32,
    /// What it says it is.
    #[serde(default)]
    pub media_type: Option<String>,
    /// What the artifact is.
    #[serde(default)]
    pub artifact_type: Option<String>,
    /// Its config.
    pub config: Descriptor,
    /// Its layers.
    #[serde(default)]
    pub layers: Vec<Descriptor>,
}

/// The index of a layout.
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
    /// Everything that it names.
    pub fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        std::iter::once(&self.config).chain(&self.layers)
    }
}
