//! Artifact in the format of its own type: an OCI image whose contents a plugin wrote to files.

use std::io::{BufReader, Read};

use domain::{digest::Digest, image::is_tag};
use oci_layout::{
    ArtifactManifest, Blob, Layout,
    image::{ImageManifestBuilder, MediaType, SCHEMA_VERSION},
};
use schemas::plugin::{BuiltBlob, BuiltImage};
use serde_json::Value;

use super::{
    contract::{PluginError, Sink},
    external::value_file,
    plugin::{Halt, Work},
    source::layout_error,
    transfer,
};
use crate::artifacts::is_archive;

/// Media type of the config of a Helm chart.
const CHART_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// Largest config in bytes.
const CONFIG_LIMIT: u64 = 1 << 20;
/// Largest layer in bytes.
const LAYER_LIMIT: u64 = 512 << 20;

/// Pushes an image as the artifact of the component.
pub(crate) async fn push(
    work: &Work<'_>,
    repository: &str,
    image: &BuiltImage,
    sink: &mut dyn Sink,
) -> Result<(Digest, u64), Halt> {
    sink.phase("push");
    let [layer] = image.layers.as_slice() else {
        let number = image.layers.len();
        return Err(failed(format!("the image has {number} layers, but it must have one")).into());
    };
    if !is_archive(&layer.media_type) {
        let kind = &layer.media_type;
        return Err(
            failed(format!("the media type {kind} of its layer is not a tar archive")).into()
        );
    }
    let layout = Layout::new(&work.job.artifacts_dir);
    let config = store(work, &layout, &image.config, CONFIG_LIMIT)?;
    let layer = store(work, &layout, layer, LAYER_LIMIT)?;
    let manifest = manifest(&config, &layer).map_err(failed)?;
    let tag = chart_tag(&layout, &config);
    transfer::push(work, &layout, repository, (&manifest, tag), sink).await
}

/// Returns the tag by which Helm finds a chart in a registry: its version. `None` for other types.
fn chart_tag(layout: &Layout, config: &Blob) -> Option<String> {
    if config.media_type.to_string() != CHART_CONFIG {
        return None;
    }
    let file = BufReader::new(layout.verified(&config.digest).ok()?);
    let chart: Value = serde_json::from_reader(file).ok()?;
    let tag = chart["version"].as_str()?.replace('+', "_");
    is_tag(&tag).then_some(tag)
}

fn failed(why: String) -> PluginError {
    PluginError::PluginFailed(format!("it built an invalid image: {why}"))
}

/// Stores a file in the layout, if it has the digest and the size that the plugin states.
fn store(work: &Work<'_>, layout: &Layout, blob: &BuiltBlob, limit: u64) -> Result<Blob, Halt> {
    let (file, name) = (&blob.file, blob.file.path.display());
    let opened = value_file::open(&file.path, limit, &work.job.work_dir);
    let mut opened = opened.map_err(|why| failed(format!("cannot use its file {name}: {why}")))?;
    let mut writer = layout.writer(limit).map_err(layout_error)?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = opened.read(&mut buffer);
        let read = read.map_err(|error| failed(format!("cannot read its file {name}: {error}")))?;
        if read == 0 {
            break;
        }
        writer.append(&buffer[..read]).map_err(layout_error)?;
    }
    if writer.length() != file.size_bytes {
        return Err(failed(format!(
            "its file {name} has {} bytes, but the result states {}",
            writer.length(),
            file.size_bytes
        ))
        .into());
    }
    let digest = writer.finish(Some(&file.digest)).map_err(layout_error)?;
    Ok(Blob { media_type: blob.media_type.as_str().into(), digest, size: file.size_bytes })
}

fn manifest(config: &Blob, layer: &Blob) -> Result<ArtifactManifest, String> {
    let image = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .config(config.descriptor())
        .layers([layer.descriptor()])
        .build()
        .map_err(|error| error.to_string())?;
    image.try_into().map_err(|error: oci_layout::ManifestError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_the_manifest_of_helm() {
        let config = Blob::of("application/vnd.cncf.helm.config.v1+json", b"{}");
        let kind = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
        let manifest = manifest(&config, &Blob::of(kind, b"tgz")).unwrap();
        let text = String::from_utf8(manifest.to_bytes().unwrap()).unwrap();
        assert!(
            text.contains(r#""mediaType":"application/vnd.cncf.helm.config.v1+json""#),
            "{text}"
        );
        assert!(text.contains(kind) && !text.contains("artifactType"), "{text}");
    }
}
