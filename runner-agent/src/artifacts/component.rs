//! Artifact of a component: one layer with its files.

use domain::digest::Digest;
use oci_layout::{
    ArtifactManifest, Blob,
    image::{ImageManifestBuilder, MediaType, SCHEMA_VERSION},
};

use super::ArtifactError;

pub const ARTIFACT_TYPE: &str = "application/vnd.stead.component.v1";
/// Media type of the only layer of a component: a deterministic tar.
pub const LAYER_TYPE: &str = "application/vnd.stead.component.layer.v1.tar";

/// Returns the manifest of a component with this layer.
#[expect(clippy::expect_used, reason = "all required fields are set, and blobs have a SHA-256")]
pub fn component(layer: &Blob) -> ArtifactManifest {
    let image = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .artifact_type(ARTIFACT_TYPE)
        .config(Blob::empty().descriptor())
        .layers([layer.descriptor()]);
    image.build().expect("a complete manifest").try_into().expect("a valid manifest")
}

/// Returns the layer with the component's files, if this is the artifact of a component.
///
/// # Errors
/// [`ArtifactError::BadManifest`]
pub fn component_layer<'m>(
    digest: &Digest,
    manifest: &'m ArtifactManifest,
) -> Result<&'m Blob, ArtifactError> {
    match manifest.layers() {
        [layer] if layer.media_type.as_ref() == LAYER_TYPE => Ok(layer),
        _ => Err(ArtifactError::BadManifest {
            digest: digest.clone(),
            why: format!("a component must have exactly one layer, of type {LAYER_TYPE}"),
        }),
    }
}
