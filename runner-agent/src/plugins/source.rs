//! Fetches the files of a job. Pulls artifacts into the install's own layout and unpacks them from
//! the layout.

use std::{fs::File, future::Future, path::PathBuf};

use domain::digest::Digest;
use flate2::read::GzDecoder;
use oci_layout::{Layout, LayoutError};
use schemas::runner::JobKind;

use super::{
    contract::{PluginError, Sink, Stream},
    git,
    plugin::{Description, Halt, Plugin, Work},
    transfer,
    work::private_dir,
};
use crate::{
    artifacts::{
        ArtifactError, Limits, component, component_directory, component_layer, is_compressed,
        pack_into, pull, pull_blob, unpack,
    },
    host,
};

/// Largest source of a build in bytes.
const SOURCE_LIMIT: u64 = 2 << 30;

/// Unpacks every artifact of the manifest. A single artifact goes to [`Work::root`], and its
/// component's directory becomes [`Work::source`]. Several artifacts go to `<root>/<n>`, by their
/// position in the manifest.
pub(crate) async fn sync(work: &mut Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
    let artifacts = &work.manifest.artifacts;
    if artifacts.is_empty() {
        return Ok(());
    }
    sink.phase("sync");
    let layout = Layout::new(&work.job.artifacts_dir);
    for (index, artifact) in artifacts.iter().enumerate() {
        let is_local = layout.complete(&artifact.digest);
        let pulled = pull(&work.job.registry, &layout, &artifact.repository, &artifact.digest);
        let image = or_cancelled(work, pulled).await?;
        let line = match is_local {
            true => format!("{} is already on this host", artifact.digest),
            false => format!("pulled {}@{}", artifact.repository, artifact.digest),
        };
        sink.line(Stream::Runner, line.as_bytes());
        let layer = component_layer(&artifact.digest, &image).map_err(artifact_error)?;
        let blob = (artifact.repository.as_str(), &layer.digest, layer.size);
        let tar = verified(work, &layout, blob, sink).await?;
        layout.touch(&artifact.digest, host::system_time());
        let dir = artifact_dir(work, index);
        private_dir(&dir)?;
        let unpacked = match is_compressed(layer.media_type.as_ref()) {
            true => unpack(GzDecoder::new(tar), &dir, Limits::default()),
            false => unpack(tar, &dir, Limits::default()),
        };
        unpacked.map_err(artifact_error)?;
        let below = component_directory(&artifact.digest, &image).map_err(artifact_error)?;
        work.directories.push(dir.join(below));
    }
    if let [only] = work.directories.as_slice() {
        work.source = only.clone();
    }
    Ok(())
}

/// Returns a blob that matches its digest. Moves a corrupt blob to quarantine and pulls it again.
/// Otherwise its artifact would stay unusable on this runner.
pub(crate) async fn verified(
    work: &Work<'_>,
    layout: &Layout,
    (repository, digest, limit): (&str, &Digest, u64),
    sink: &mut dyn Sink,
) -> Result<File, Halt> {
    let damage = match layout.verified(digest) {
        Ok(file) => return Ok(file),
        Err(damage) => damage,
    };
    let line = match layout.has(digest) {
        true => {
            let aside = layout.quarantine(digest).map_err(layout_error)?;
            format!("{damage}: moved to {}; the runner pulls the blob again", aside.display())
        }
        false => format!("the blob {digest} is missing; the runner pulls it again"),
    };
    sink.line(Stream::Runner, line.as_bytes());
    or_cancelled(work, pull_blob(&work.job.registry, layout, repository, digest, limit)).await?;
    layout.verified(digest).map_err(layout_error)
}

/// Returns the directory of the artifact with this digest.
pub(crate) fn dir_of(work: &Work<'_>, digest: &Digest) -> Option<PathBuf> {
    let index = work.manifest.artifacts.iter().position(|artifact| artifact.digest == *digest)?;
    work.directories.get(index).cloned()
}

/// Writes the source of a build to [`Work::root`], from the server or from git. Returns the
/// component's repository in the registry.
pub(crate) async fn fetch(work: &mut Work<'_>, sink: &mut dyn Sink) -> Result<String, Halt> {
    sink.phase("sync");
    let malformed = |what: &str| {
        PluginError::Refused(format!("cannot build: the manifest's inputs have no {what}"))
    };
    if !work.manifest.inputs["git"].is_null() {
        let repository = work.input("repository").ok_or_else(|| malformed("repository"))?;
        let directory = git::fetch(work, sink).await?;
        work.source = work.root.join(directory);
        return Ok(repository.to_owned());
    }
    let digest: Digest = work
        .input("source")
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| malformed("source digest"))?;
    let repository = work.input("repository").ok_or_else(|| malformed("repository"))?;
    let layout = Layout::new(&work.job.artifacts_dir);
    if !layout.has(&digest) {
        let registry = &work.job.registry;
        let pulled = pull_blob(registry, &layout, repository, &digest, SOURCE_LIMIT);
        or_cancelled(work, pulled).await?;
    }
    let tar = verified(work, &layout, (repository, &digest, SOURCE_LIMIT), sink).await?;
    unpack(tar, &work.root, Limits::default()).map_err(artifact_error)?;
    sink.line(Stream::Runner, format!("source {digest}").as_bytes());
    Ok(repository.to_owned())
}

/// Packs [`Work::root`] and pushes it as the artifact of the component.
pub(crate) async fn push(
    work: &Work<'_>,
    repository: &str,
    sink: &mut dyn Sink,
) -> Result<(Digest, u64), Halt> {
    sink.phase("push");
    let layout = Layout::new(&work.job.artifacts_dir);
    let layer = pack_into(&layout, &work.root).map_err(artifact_error)?;
    let directory = work.source.strip_prefix(&work.root).unwrap_or(&work.source);
    let manifest = component(&layer, &directory.to_string_lossy());
    transfer::push(work, &layout, repository, (&manifest, None), sink).await
}

/// Build of component types without a plugin: the artifact is the source.
pub(crate) struct SourceBuild;

impl Plugin for SourceBuild {
    fn describe(&self) -> Description {
        Description { name: "source".into(), kinds: vec![JobKind::Build] }
    }

    async fn health(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<(), Halt> {
        Ok(())
    }

    async fn build(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<(), Halt> {
        Ok(())
    }
}

fn artifact_dir(work: &Work<'_>, index: usize) -> PathBuf {
    match work.manifest.artifacts.len() {
        1 => work.root.clone(),
        _ => work.root.join(index.to_string()),
    }
}

/// Waits for a transfer, or until the job is cancelled.
pub(crate) async fn or_cancelled<T>(
    work: &Work<'_>,
    doing: impl Future<Output = Result<T, ArtifactError>>,
) -> Result<T, Halt> {
    tokio::select! {
        biased;
        () = work.job.cancel.requested.cancelled() => Err(Halt::cancelled(false)),
        done = doing => done.map_err(artifact_error),
    }
}

pub(crate) fn layout_error(error: LayoutError) -> Halt {
    match error {
        LayoutError::Io { context, reason } => PluginError::Io { context, source: reason }.into(),
        other @ (LayoutError::TooLarge { .. }
        | LayoutError::WrongDigest { .. }
        | LayoutError::Damaged { .. }
        | LayoutError::Manifest { .. }) => {
            PluginError::ArtifactUnavailable(other.to_string()).into()
        }
    }
}

fn artifact_error(error: ArtifactError) -> Halt {
    match error {
        ArtifactError::Io { context, source } => PluginError::Io { context, source }.into(),
        ArtifactError::Layout(error) => layout_error(error),
        other @ (ArtifactError::Unpackable { .. }
        | ArtifactError::Hostile { .. }
        | ArtifactError::TooLarge { .. }
        | ArtifactError::BadManifest { .. }
        | ArtifactError::Missing { .. }
        | ArtifactError::Registry { .. }
        | ArtifactError::Unreachable { .. }) => {
            PluginError::ArtifactUnavailable(other.to_string()).into()
        }
    }
}
