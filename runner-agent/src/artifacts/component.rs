//! Artifact of a component: one layer with its files.

use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
};

use domain::digest::Digest;
use oci_layout::{
    ArtifactManifest, Blob,
    image::{ImageManifestBuilder, MediaType, SCHEMA_VERSION},
};

use super::ArtifactError;

pub const ARTIFACT_TYPE: &str = "application/vnd.stead.component.v1";
/// Media type of the only layer of a component: a deterministic tar.
pub const LAYER_TYPE: &str = "application/vnd.stead.component.layer.v1.tar";

/// Annotation with the directory of the component in the layer, if it is not the root. The layer of
/// a source from git may contain other directories of the repository, which the component
/// references.
pub const DIRECTORY: &str = "dev.stead.component.directory";

/// Returns the manifest of a component with this layer. `directory` is the directory of the
/// component in the layer; `""` is the root.
#[expect(clippy::expect_used, reason = "all required fields are set, and blobs have a SHA-256")]
pub fn component(layer: &Blob, directory: &str) -> ArtifactManifest {
    let mut image = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .artifact_type(ARTIFACT_TYPE)
        .config(Blob::empty().descriptor())
        .layers([layer.descriptor()]);
    if !directory.is_empty() {
        image = image.annotations(HashMap::from([(DIRECTORY.to_owned(), directory.to_owned())]));
    }
    image.build().expect("a complete manifest").try_into().expect("a valid manifest")
}

/// Returns whether a media type is that of a tar archive, which may be compressed.
pub fn is_archive(media_type: &str) -> bool {
    media_type.ends_with(".tar") || is_compressed(media_type)
}

/// Returns whether a media type is that of a compressed tar archive.
pub fn is_compressed(media_type: &str) -> bool {
    media_type.ends_with(".tar+gzip")
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
        [layer] if is_archive(layer.media_type.as_ref()) => Ok(layer),
        _ => Err(ArtifactError::BadManifest {
            digest: digest.clone(),
            why: format!(
                "a component must have exactly one layer, a tar archive such as {LAYER_TYPE}"
            ),
        }),
    }
}

/// Returns the directory of the component in its layer, relative to the root.
///
/// # Errors
/// [`ArtifactError::BadManifest`] if the directory leaves the root.
pub fn component_directory(
    digest: &Digest,
    manifest: &ArtifactManifest,
) -> Result<PathBuf, ArtifactError> {
    let annotations = manifest.image().annotations().as_ref();
    let directory = annotations.and_then(|all| all.get(DIRECTORY)).map_or("", String::as_str);
    let directory = Path::new(directory);
    if directory.components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(directory.to_owned());
    }
    let why = format!("its annotation {DIRECTORY} is not a path below its root: {directory:?}");
    Err(ArtifactError::BadManifest { digest: digest.clone(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_component_stays_below_its_root() {
        let layer = Blob::of(LAYER_TYPE, b"tar");
        let digest = oci_layout::sha256(b"");
        let directory = |of: &str| component_directory(&digest, &component(&layer, of));
        assert_eq!(directory("").unwrap(), Path::new(""));
        assert_eq!(directory("modules/vpc").unwrap(), Path::new("modules/vpc"));
        for outside in ["..", "a/../../b", "/etc", "./a"] {
            let error = directory(outside).unwrap_err().to_string();
            assert!(error.contains("not a path below its root"), "{error}");
        }
    }
}
