//! Fields of OCI image manifests and indexes that artifacts use.

use std::collections::BTreeMap;

use domain::digest::Digest;
use serde::{Deserialize, Serialize};

use super::{ArtifactError, sha256};

/// The media type of a manifest.
pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of an index.
pub(crate) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
/// Artifact type of a component.
pub const ARTIFACT_TYPE: &str = "application/vnd.stead.component.v1";
/// Media type of the only layer of a component: a deterministic tar.
pub const LAYER_TYPE: &str = "application/vnd.stead.component.layer.v1.tar";
/// Media type of the empty config, `{}`.
const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
/// Bytes of the empty config.
pub(crate) const EMPTY: &[u8] = b"{}";

/// Content by digest and size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Manifest of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageManifest {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

/// Index at the root of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    pub manifests: Vec<Descriptor>,
}

impl Descriptor {
    /// Returns the descriptor of these bytes.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Descriptor {
            media_type: media_type.into(),
            digest: sha256(bytes),
            size: bytes.len() as u64,
            artifact_type: None,
            annotations: BTreeMap::new(),
        }
    }
}

impl ImageManifest {
    /// Returns the manifest of a component with this layer.
    pub fn component(layer: Descriptor) -> Self {
        ImageManifest {
            schema_version: 2,
            media_type: Some(MANIFEST_TYPE.into()),
            artifact_type: Some(ARTIFACT_TYPE.into()),
            config: Descriptor::of(EMPTY_TYPE, EMPTY),
            layers: vec![layer],
        }
    }

    /// Parses verified bytes.
    pub fn read(digest: &Digest, bytes: &[u8]) -> Result<Self, ArtifactError> {
        let bad = |why: String| ArtifactError::BadManifest { digest: digest.clone(), why };
        let read: Self = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
        if read.schema_version != 2 {
            return Err(bad(format!("schema version {} is not supported", read.schema_version)));
        }
        Ok(read)
    }

    /// Returns the layer with the component's files, if this is the artifact of a component.
    pub fn component_layer(&self, digest: &Digest) -> Result<&Descriptor, ArtifactError> {
        match self.layers.as_slice() {
            [layer] if layer.media_type == LAYER_TYPE => Ok(layer),
            _ => Err(ArtifactError::BadManifest {
                digest: digest.clone(),
                why: format!("a component must have exactly one layer, of type {LAYER_TYPE}"),
            }),
        }
    }

    /// Returns every blob of the artifact: config and layers.
    pub fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        std::iter::once(&self.config).chain(&self.layers)
    }
}
