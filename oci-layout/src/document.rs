//! Documents of a registry: the manifest of one image, or the index of images for several
//! platforms.

use domain::{digest::Digest, image::Platform};
use oci_spec::image::{Descriptor, ImageIndex, MediaType, SCHEMA_VERSION};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{ArtifactManifest, Blob, ManifestError};

/// Media type of Docker's manifests, which have the fields of an OCI manifest.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Media type of Docker's manifest lists, which have the fields of an OCI index.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// Maximum number of manifests in an index.
const MAX_LISTED: usize = 256;

/// Image manifest or image index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    Manifest(Box<ArtifactManifest>),
    List(ImageList),
}

/// Image index: the images of one artifact for several platforms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageList {
    media_type: MediaType,
    images: Vec<ListedImage>,
}

/// Entry of an image index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedImage {
    /// Absent for entries that are not images, for example attestations.
    pub platform: Option<Platform>,
    pub blob: Blob,
    descriptor: Descriptor,
}

/// Members that distinguish the documents.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    schema_version: u32,
    media_type: Option<String>,
    manifests: Option<Value>,
    layers: Option<Value>,
}

impl Document {
    /// Parses a manifest or an index, of OCI or of Docker.
    ///
    /// # Errors
    /// The bytes are neither, or a digest cannot be verified.
    pub fn parse(bytes: &[u8]) -> Result<Document, ManifestError> {
        let shape: Shape =
            serde_json::from_slice(bytes).map_err(|error| ManifestError::new(error.to_string()))?;
        if shape.schema_version != SCHEMA_VERSION {
            let version = shape.schema_version;
            return Err(ManifestError::new(format!("schema version {version} is not supported")));
        }
        match (shape.manifests.is_some(), shape.layers.is_some()) {
            (true, false) => ImageList::parse(bytes, shape.media_type).map(Document::List),
            (false, true) => ArtifactManifest::parse(bytes)
                .map(|manifest| Document::Manifest(Box::new(manifest))),
            (true, true) | (false, false) => {
                Err(ManifestError::new("it is neither an image manifest nor an image index"))
            }
        }
    }

    /// Returns the media type for the header `Content-Type`.
    pub fn media_type(&self) -> &MediaType {
        match self {
            Document::Manifest(manifest) => {
                manifest.image().media_type().as_ref().unwrap_or(&MediaType::ImageManifest)
            }
            Document::List(list) => &list.media_type,
        }
    }

    /// Returns the type of an artifact that is not an image.
    pub(crate) fn artifact_type(&self) -> Option<MediaType> {
        match self {
            Document::Manifest(manifest) => manifest.image().artifact_type().clone(),
            Document::List(_) => None,
        }
    }

    /// Returns the blobs that the document names: config and layers, or manifests.
    pub fn blobs(&self) -> Box<dyn Iterator<Item = &Blob> + Send + '_> {
        match self {
            Document::Manifest(manifest) => Box::new(manifest.blobs()),
            Document::List(list) => Box::new(list.images.iter().map(|image| &image.blob)),
        }
    }
}

impl ImageList {
    fn parse(bytes: &[u8], media_type: Option<String>) -> Result<ImageList, ManifestError> {
        let index: ImageIndex =
            serde_json::from_slice(bytes).map_err(|error| ManifestError::new(error.to_string()))?;
        let media_type = match media_type.as_deref() {
            None => MediaType::ImageIndex,
            Some(kind) if kind == MediaType::ImageIndex.as_ref() || kind == DOCKER_LIST => {
                kind.into()
            }
            Some(other) => {
                return Err(ManifestError::new(format!(
                    "media type {other} is not that of an index"
                )));
            }
        };
        if index.manifests().len() > MAX_LISTED {
            let count = index.manifests().len();
            return Err(ManifestError::new(format!(
                "it lists {count} manifests, more than {MAX_LISTED}"
            )));
        }
        let images = index.manifests().iter().map(ListedImage::of).collect::<Result<_, _>>()?;
        Ok(ImageList { media_type, images })
    }

    pub fn images(&self) -> &[ListedImage] {
        &self.images
    }

    /// Returns whether the index lists this manifest.
    pub fn lists(&self, digest: &Digest) -> bool {
        self.images.iter().any(|image| image.blob.digest == *digest)
    }

    /// Returns the first image that runs on the platform.
    pub fn image_for(&self, platform: &Platform) -> Option<&ListedImage> {
        let runs =
            |image: &&ListedImage| image.platform.as_ref().is_some_and(|of| platform.accepts(of));
        self.images.iter().find(runs)
    }

    /// Returns the bytes of an index with only these images. Their entries are unchanged.
    ///
    /// # Errors
    /// The index cannot be serialized as JSON.
    pub fn with_only(&self, images: &[&ListedImage]) -> Result<Vec<u8>, ManifestError> {
        let descriptors: Vec<_> = images.iter().map(|image| &image.descriptor).collect();
        let list = json!({
            "schemaVersion": SCHEMA_VERSION,
            "mediaType": self.media_type,
            "manifests": descriptors,
        });
        serde_json::to_vec(&list).map_err(|error| ManifestError::new(error.to_string()))
    }
}

impl ListedImage {
    fn of(descriptor: &Descriptor) -> Result<ListedImage, ManifestError> {
        let media_type = descriptor.media_type().as_ref();
        if media_type == MediaType::ImageIndex.as_ref() || media_type == DOCKER_LIST {
            let digest = descriptor.digest();
            return Err(ManifestError::new(format!("it lists the nested index {digest}")));
        }
        let is_image =
            media_type == MediaType::ImageManifest.as_ref() || media_type == DOCKER_MANIFEST;
        let platform = descriptor.platform().as_ref().filter(|_| is_image).and_then(|platform| {
            let (os, architecture) = (platform.os(), platform.architecture());
            let variant = platform.variant().as_ref().map(|variant| format!("/{variant}"));
            format!("{os}/{architecture}{}", variant.unwrap_or_default()).parse().ok()
        });
        let blob = Blob::try_from(descriptor)?;
        Ok(ListedImage { platform, blob, descriptor: descriptor.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{manifest::tests::manifest, sha256};

    fn entry(platform: &Value, content: &[u8]) -> Value {
        json!({
            "mediaType": DOCKER_MANIFEST,
            "digest": sha256(content), "size": content.len(), "platform": platform,
        })
    }

    fn list() -> Value {
        json!({
            "schemaVersion": 2,
            "mediaType": DOCKER_LIST,
            "manifests": [
                entry(&json!({"os": "linux", "architecture": "arm", "variant": "v6"}), b"a"),
                entry(&json!({"os": "linux", "architecture": "arm", "variant": "v7"}), b"b"),
                entry(&json!({"os": "linux", "architecture": "amd64"}), b"c"),
                entry(&json!({"os": "unknown", "architecture": "unknown"}), b"d"),
            ],
        })
    }

    fn parsed(document: &Value) -> Result<Document, ManifestError> {
        Document::parse(document.to_string().as_bytes())
    }

    #[test]
    fn a_list_of_docker_is_read_and_reduced_to_platforms() {
        let Document::List(all) = parsed(&list()).unwrap() else { panic!("a manifest") };
        let of = |platform: &str| all.image_for(&platform.parse().unwrap());
        assert_eq!(of("linux/arm/v7").unwrap().blob.digest, sha256(b"b"));
        assert_eq!(of("linux/arm").unwrap().blob.digest, sha256(b"a"));
        assert!(of("linux/s390x").is_none());
        let reduced = all.with_only(&[&all.images()[1], &all.images()[2]]).unwrap();
        let document = Document::parse(&reduced).unwrap();
        assert_eq!(document.media_type().as_ref(), DOCKER_LIST);
        let digests: Vec<_> = document.blobs().map(|blob| blob.digest.clone()).collect();
        assert_eq!(digests, [sha256(b"b"), sha256(b"c")]);
        let variant = serde_json::from_slice::<Value>(&reduced).unwrap();
        assert_eq!(variant["manifests"][0]["platform"]["variant"], "v7");
    }

    #[test]
    fn a_manifest_of_docker_is_read() {
        let mut document: Value =
            serde_json::from_slice(&manifest(b"layer").to_bytes().unwrap()).unwrap();
        document["mediaType"] = json!(DOCKER_MANIFEST);
        let document = parsed(&document).unwrap();
        assert_eq!(document.media_type().as_ref(), DOCKER_MANIFEST);
        assert_eq!(document.blobs().count(), 2);
    }

    #[test]
    fn nested_ambiguous_and_oversized_documents_are_rejected() {
        let error_of = |change: &dyn Fn(&mut Value)| {
            let mut document = list();
            change(&mut document);
            parsed(&document).unwrap_err().to_string()
        };
        let error = error_of(&|list| list["manifests"][0]["mediaType"] = json!(DOCKER_LIST));
        assert!(error.starts_with("it lists the nested index"), "{error}");
        let error = error_of(&|list| list["layers"] = json!([]));
        assert!(error.starts_with("it is neither"), "{error}");
        let error = error_of(&|list| list["schemaVersion"] = json!(1));
        assert_eq!(error, "schema version 1 is not supported");
        let error = error_of(&|list| list["mediaType"] = json!(DOCKER_MANIFEST));
        assert!(error.ends_with("is not that of an index"), "{error}");
        let error = error_of(&|list| {
            let entry = list["manifests"][0].clone();
            list["manifests"] = vec![entry; MAX_LISTED + 1].into();
        });
        assert!(error.contains("more than 256"), "{error}");
    }
}
