//! Image indexes: one artifact with a manifest per platform.

use domain::digest::Digest;
use oci_spec::image::{
    Arch, Descriptor, ImageIndex, ImageIndexBuilder, MediaType, Os, Platform, PlatformBuilder,
    SCHEMA_VERSION,
};

use crate::{Blob, ManifestError};

/// Image index whose manifests have a platform and SHA-256 digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlatformIndex {
    artifact_type: String,
    manifests: Vec<(String, Blob)>,
}

impl PlatformIndex {
    /// Returns an index of these manifests, each with its platform as `os/architecture`.
    pub fn new(artifact_type: &str, manifests: Vec<(String, Blob)>) -> PlatformIndex {
        PlatformIndex { artifact_type: artifact_type.into(), manifests }
    }

    /// Parses the bytes of an index.
    ///
    /// # Errors
    /// Fails if the bytes are not an image index, if a manifest has no platform or an unsupported
    /// digest, or if two manifests have the same platform.
    pub fn parse(bytes: &[u8]) -> Result<PlatformIndex, ManifestError> {
        let index: ImageIndex =
            serde_json::from_slice(bytes).map_err(|error| ManifestError::new(error.to_string()))?;
        if index.schema_version() != SCHEMA_VERSION {
            let version = index.schema_version();
            return Err(ManifestError::new(format!("schema version {version} is not supported")));
        }
        // Without this check, an image manifest would parse as an empty index.
        if index.media_type() != &Some(MediaType::ImageIndex) {
            return Err(ManifestError::new(format!(
                "its media type is not {}",
                MediaType::ImageIndex
            )));
        }
        let mut manifests = Vec::new();
        for descriptor in index.manifests() {
            if *descriptor.media_type() != MediaType::ImageManifest {
                let found = descriptor.media_type();
                return Err(ManifestError::new(format!("it lists {found}, not only manifests")));
            }
            let platform = descriptor.platform().as_ref().map(text).ok_or_else(|| {
                ManifestError::new(format!("the manifest {} has no platform", descriptor.digest()))
            })?;
            if manifests.iter().any(|(known, _)| *known == platform) {
                return Err(ManifestError::new(format!("the platform {platform} is listed twice")));
            }
            manifests.push((platform, Blob::try_from(descriptor)?));
        }
        let artifact_type = index.artifact_type().as_ref().map(ToString::to_string);
        Ok(PlatformIndex { artifact_type: artifact_type.unwrap_or_default(), manifests })
    }

    /// Serializes the index. Equal indexes have equal bytes.
    ///
    /// # Errors
    /// Fails if a platform does not have the form `os/architecture`.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ManifestError> {
        let descriptors: Result<Vec<Descriptor>, ManifestError> =
            self.manifests.iter().map(|(platform, blob)| descriptor(platform, blob)).collect();
        let index = ImageIndexBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageIndex)
            .artifact_type(self.artifact_type.as_str())
            .manifests(descriptors?)
            .build();
        let index = index.map_err(|error| ManifestError::new(error.to_string()))?;
        let sorted = serde_json::to_value(index);
        let bytes = sorted.and_then(|sorted| serde_json::to_vec(&sorted));
        bytes.map_err(|error| ManifestError::new(error.to_string()))
    }

    /// Returns the artifact type. Empty if the index has none.
    pub fn artifact_type(&self) -> &str {
        &self.artifact_type
    }

    /// Returns the manifests with their platforms.
    pub fn manifests(&self) -> &[(String, Blob)] {
        &self.manifests
    }

    /// Returns the manifest for a platform.
    pub fn manifest_for(&self, platform: &str) -> Option<&Blob> {
        self.manifests.iter().find(|(of, _)| of == platform).map(|(_, blob)| blob)
    }

    /// Returns whether the index lists this manifest.
    pub fn lists(&self, digest: &Digest) -> bool {
        self.manifests.iter().any(|(_, blob)| blob.digest == *digest)
    }
}

fn text(platform: &Platform) -> String {
    format!("{}/{}", platform.os(), platform.architecture())
}

fn descriptor(platform: &str, blob: &Blob) -> Result<Descriptor, ManifestError> {
    let malformed = || ManifestError::new(format!("{platform:?} is not a platform"));
    let (os, architecture) = platform.split_once('/').ok_or_else(malformed)?;
    let platform = PlatformBuilder::default()
        .os(Os::from(os))
        .architecture(Arch::from(architecture))
        .build()
        .map_err(|_| malformed())?;
    let mut descriptor = blob.descriptor();
    descriptor.set_platform(Some(platform));
    Ok(descriptor)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn index() -> PlatformIndex {
        let blob = |bytes: &[u8]| Blob::of(MediaType::ImageManifest.as_ref(), bytes);
        let manifests =
            vec![("linux/amd64".into(), blob(b"a")), ("linux/arm64".into(), blob(b"b"))];
        PlatformIndex::new("application/vnd.example", manifests)
    }

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let bytes = index().to_bytes().unwrap();
        let read = PlatformIndex::parse(&bytes).unwrap();
        assert_eq!((&read, read.artifact_type()), (&index(), "application/vnd.example"));
        assert_eq!(index().to_bytes().unwrap(), bytes);
        let arm = read.manifest_for("linux/arm64").unwrap();
        assert!(read.lists(&arm.digest) && !read.lists(&Blob::of("x/y", b"c").digest));
        assert_eq!(read.manifest_for("linux/riscv64"), None);
    }

    #[test]
    fn other_documents_and_ambiguous_indexes_are_rejected() {
        let valid: Value = serde_json::from_slice(&index().to_bytes().unwrap()).unwrap();
        let error_of = |change: &dyn Fn(&mut Value)| {
            let mut changed = valid.clone();
            change(&mut changed);
            PlatformIndex::parse(changed.to_string().as_bytes()).unwrap_err().to_string()
        };
        let of_manifest = json!("application/vnd.oci.image.manifest.v1+json");
        let error = error_of(&|index| index["mediaType"] = of_manifest.clone());
        assert!(error.contains("media type is not"), "{error}");
        let error = error_of(&|index| index["manifests"][1] = index["manifests"][0].clone());
        assert_eq!(error, "the platform linux/amd64 is listed twice");
        let error = error_of(&|index| {
            index["manifests"][0].as_object_mut().unwrap().remove("platform");
        });
        assert!(error.ends_with("has no platform"), "{error}");
        let error = error_of(&|index| index["manifests"][0]["mediaType"] = json!("x/y"));
        assert!(error.starts_with("it lists x/y"), "{error}");
        assert!(PlatformIndex::parse(b"{}").is_err());
    }
}
