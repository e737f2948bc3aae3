//! Image manifests of artifacts.

use domain::digest::Digest;
use oci_spec::image::{Descriptor, ImageManifest, MediaType, SCHEMA_VERSION, Sha256Digest};

use crate::{
    digest::{hex_of, sha256},
    document::DOCKER_MANIFEST,
};

/// Largest size of a manifest in bytes.
pub const MANIFEST_LIMIT: u64 = 4 << 20;
/// Bytes of the empty config.
pub const EMPTY: &[u8] = b"{}";

/// Reason why bytes are not the manifest or the index of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ManifestError(String);

impl ManifestError {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        ManifestError(why.into())
    }
}

/// Reference to content by media type, digest and size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub media_type: MediaType,
    pub digest: Digest,
    /// Size in bytes.
    pub size: u64,
}

/// Image manifest with schema version 2, whose blobs have SHA-256 digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactManifest {
    image: ImageManifest,
    config: Blob,
    layers: Vec<Blob>,
}

impl Blob {
    /// Returns the reference to a blob with these bytes.
    pub fn of(media_type: &str, bytes: &[u8]) -> Blob {
        Blob { media_type: media_type.into(), digest: sha256(bytes), size: bytes.len() as u64 }
    }

    /// Returns the reference to the blob of the empty config.
    pub fn empty() -> Blob {
        Blob::of(MediaType::EmptyJSON.as_ref(), EMPTY)
    }

    /// Returns the reference to this blob, as manifests and indexes contain it.
    #[expect(clippy::expect_used, reason = "the digits of a `Digest` are those of a SHA-256")]
    pub fn descriptor(&self) -> Descriptor {
        let digest: Sha256Digest =
            hex_of(&self.digest).parse().expect("the digits of a digest must be a SHA-256");
        Descriptor::new(self.media_type.clone(), self.size, digest)
    }
}

impl TryFrom<&Descriptor> for Blob {
    type Error = ManifestError;

    /// Rejects algorithms other than SHA-256, because Stead cannot verify their digests.
    fn try_from(descriptor: &Descriptor) -> Result<Blob, ManifestError> {
        let digest = descriptor.digest().as_ref().parse();
        let digest = digest.map_err(|error| ManifestError(format!("{error}")))?;
        let media_type = descriptor.media_type().clone();
        Ok(Blob { media_type, digest, size: descriptor.size() })
    }
}

impl TryFrom<ImageManifest> for ArtifactManifest {
    type Error = ManifestError;

    fn try_from(image: ImageManifest) -> Result<ArtifactManifest, ManifestError> {
        if image.schema_version() != SCHEMA_VERSION {
            let version = image.schema_version();
            return Err(ManifestError(format!("schema version {version} is not supported")));
        }
        let is_manifest = |kind: &MediaType| {
            *kind == MediaType::ImageManifest || kind.as_ref() == DOCKER_MANIFEST
        };
        let other = image.media_type().as_ref().filter(|kind| !is_manifest(kind));
        if let Some(other) = other {
            let expected = MediaType::ImageManifest;
            return Err(ManifestError(format!("media type {other} instead of {expected}")));
        }
        let config = image.config().try_into()?;
        let layers = image.layers().iter().map(Blob::try_from).collect::<Result<_, _>>()?;
        Ok(ArtifactManifest { image, config, layers })
    }
}

impl ArtifactManifest {
    /// Parses the bytes of a manifest.
    ///
    /// # Errors
    /// The bytes are not JSON, or not an image manifest that Stead can verify.
    pub fn parse(bytes: &[u8]) -> Result<ArtifactManifest, ManifestError> {
        let image: ImageManifest =
            serde_json::from_slice(bytes).map_err(|error| ManifestError(error.to_string()))?;
        image.try_into()
    }

    /// Serializes the manifest. Equal manifests give equal bytes, which may differ from the bytes
    /// that [`Self::parse`] read.
    ///
    /// # Errors
    /// The manifest cannot be written as JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ManifestError> {
        // `ImageManifest` stores annotations in a `HashMap`, which has a random order. A `Value`
        // sorts its keys.
        let sorted = serde_json::to_value(&self.image);
        let bytes = sorted.and_then(|sorted| serde_json::to_vec(&sorted));
        bytes.map_err(|error| ManifestError(error.to_string()))
    }

    /// Returns the image manifest with all its fields.
    pub fn image(&self) -> &ImageManifest {
        &self.image
    }

    pub fn config(&self) -> &Blob {
        &self.config
    }

    pub fn layers(&self) -> &[Blob] {
        &self.layers
    }

    /// Returns every blob of the artifact: config and layers.
    pub fn blobs(&self) -> impl Iterator<Item = &Blob> {
        std::iter::once(&self.config).chain(&self.layers)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashMap;

    use oci_spec::image::ImageManifestBuilder;
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn manifest(layer: &[u8]) -> ArtifactManifest {
        let builder = ImageManifestBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageManifest)
            .artifact_type("application/vnd.example")
            .config(Blob::empty().descriptor())
            .layers([Blob::of("application/vnd.example.layer", layer).descriptor()]);
        builder.build().unwrap().try_into().unwrap()
    }

    /// Returns the error from parsing a manifest with another value of this field.
    fn with(field: &str, value: Value) -> String {
        let bytes = manifest(b"layer").to_bytes().unwrap();
        let mut changed: Value = serde_json::from_slice(&bytes).unwrap();
        changed[field] = value;
        ArtifactManifest::parse(changed.to_string().as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let manifest = manifest(b"layer");
        let read = ArtifactManifest::parse(&manifest.to_bytes().unwrap()).unwrap();
        assert_eq!(read, manifest);
        let digests: Vec<_> = read.blobs().map(|blob| blob.digest.clone()).collect();
        assert_eq!(digests, [sha256(EMPTY), sha256(b"layer")]);
    }

    #[test]
    fn a_manifest_with_many_annotations_has_one_digest() {
        let annotations = || (0..20).map(|n| (format!("key{n}"), "value".to_owned()));
        let bytes = || {
            let mut image = manifest(b"layer").image().clone();
            image.set_annotations(Some(annotations().collect::<HashMap<_, _>>()));
            ArtifactManifest::try_from(image).unwrap().to_bytes().unwrap()
        };
        assert_eq!(sha256(&bytes()), sha256(&bytes()));
    }

    #[test]
    fn other_documents_and_digests_that_cannot_be_verified_are_rejected() {
        assert_eq!(with("schemaVersion", json!(1)), "schema version 1 is not supported");
        let index = with("mediaType", json!("application/vnd.oci.image.index.v1+json"));
        assert!(index.contains("instead of application/vnd.oci.image.manifest.v1+json"), "{index}");
        let long = format!("sha512:{}", "a".repeat(128));
        for digest in [long.as_str(), "sha256:abc", "../../etc/passwd", "x:../../etc/passwd"] {
            let layer = json!([{"mediaType": "x/y", "digest": digest, "size": 1}]);
            with("layers", layer);
        }
    }
}
