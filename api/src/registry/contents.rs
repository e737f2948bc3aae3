//! Files of a component's artifact in the data directory, to compare two builds.
use std::{collections::BTreeMap, io::Read, path::Path};

use domain::{artifact::Artifact, digest::Digest};
use oci_layout::{Document, Hasher, Layout, LayoutError};

use super::{ArtifactError, Registry, Repository, store::run_blocking};

/// Media type of the layer of a component, an uncompressed tar.
const LAYER: &str = "application/vnd.stead.component.layer.v1.tar";
/// Maximum size of a layer that is read, in bytes.
const LAYER_LIMIT: u64 = 32 << 20;

impl Registry {
    /// Returns the digests of an artifact's files by path. `None` if the directory does not have the
    /// artifact, if it is larger than 32 MiB, or if it is a chart or an image.
    ///
    /// # Errors
    /// A file operation failed, or the content is corrupt.
    pub async fn contents(
        &self,
        artifact: &Artifact,
    ) -> Result<Option<BTreeMap<String, Digest>>, ArtifactError> {
        let Ok(repository) = artifact.repository.parse::<Repository>() else { return Ok(None) };
        let (layout, digest) = (self.layout(&repository), artifact.digest.clone());
        run_blocking(move || files(&layout, &digest)).await
    }
}

fn files(
    layout: &Layout,
    artifact: &Digest,
) -> Result<Option<BTreeMap<String, Digest>>, LayoutError> {
    if !layout.has(artifact) {
        return Ok(None);
    }
    let Document::Manifest(manifest) = layout.document(artifact)? else { return Ok(None) };
    let [layer] = manifest.layers() else { return Ok(None) };
    if layer.media_type.as_ref() != LAYER || layer.size > LAYER_LIMIT || !layout.has(&layer.digest)
    {
        return Ok(None);
    }
    let mut archive = tar::Archive::new(layout.verified(&layer.digest)?);
    read(&mut archive).map(Some).map_err(|reason| LayoutError::Io {
        context: format!("cannot read the files of {artifact}"),
        reason,
    })
}

fn read(archive: &mut tar::Archive<impl Read>) -> std::io::Result<BTreeMap<String, Digest>> {
    let (mut files, mut chunk) = (BTreeMap::new(), vec![0; 64 << 10]);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = Path::display(&entry.path()?).to_string();
        let mut hasher = Hasher::default();
        loop {
            let length = entry.read(&mut chunk)?;
            if length == 0 {
                break;
            }
            hasher.update(chunk.get(..length).unwrap_or_default());
        }
        files.insert(path, hasher.finish());
    }
    Ok(files)
}
