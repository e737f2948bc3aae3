//! Pulls a published plugin and verifies that a trusted publisher signed it.
//!
//! The policy check has verified that this runner trusts the publisher in the manifest. This module
//! verifies that the publisher signed the executable for this name, version and platform.

use std::{fs::File, io::Read};

use domain::digest::Digest;
use oci_layout::{ArtifactManifest, Blob, Layout, PlatformIndex};
use schemas::{
    manifest::PluginArtifact,
    plugin::Described,
    plugin::artifact::{
        ARTIFACT_TYPE, ENVELOPE_LIMIT, ENVELOPE_TYPE, EXECUTABLE_LIMIT, EXECUTABLE_TYPE,
        PluginStatement, host_platform, parse_publisher,
    },
};

use crate::{
    artifacts::{pull, pull_blob, pull_manifest},
    host,
    plugins::{
        contract::{PluginError, Sink, Stream},
        plugin::{Halt, IoContext, Work},
        source::{layout_error, or_cancelled, verified},
    },
};

/// Verified executable for this platform.
pub(super) struct Published {
    pub file: File,
    pub digest: Digest,
    /// Signed statement of the publisher about this executable.
    pub statement: PluginStatement,
}

/// Returns the verified executable for this platform.
pub(super) async fn executable(
    work: &Work<'_>,
    artifact: &PluginArtifact,
    sink: &mut dyn Sink,
) -> Result<Published, Halt> {
    let plugin = &work.manifest.plugin;
    let refused = |why: String| {
        PluginError::Refused(format!(
            "cannot use the plugin {} {}: {why}",
            plugin.name, plugin.version
        ))
    };
    let unverified = |why: String| {
        let (name, version) = (&plugin.name, &plugin.version);
        PluginError::Unverified(format!("cannot use the plugin {name} {version}: {why}"))
    };
    let platform = host_platform().ok_or_else(|| {
        refused(format!(
            "plugins are not supported on {}; use a host with amd64 or arm64",
            std::env::consts::ARCH
        ))
    })?;
    let publisher = parse_publisher(&artifact.publisher)
        .ok_or_else(|| refused(format!(
                "the publisher in the manifest is not a public key: {}; the vendor must sync the app again",
                artifact.publisher
            )))?;
    sink.phase("plugin");
    let layout = Layout::new(&work.job.artifacts_dir);
    let index = index(work, &layout, artifact).await?;
    let entry = index.manifest_for(&platform).ok_or_else(|| {
        let platforms = index.manifests().iter().map(|(platform, _)| platform.as_str());
        let platforms = platforms.collect::<Vec<_>>().join(", ");
        refused(format!(
            "it has no executable for {platform}, only for {platforms}; ask the vendor to publish one"
        ))
    })?;
    let repository = artifact.repository.as_str();
    let registry = &work.job.registry;
    let is_complete = layout.complete(&entry.digest);
    if !is_complete {
        or_cancelled(work, pull_manifest(registry, &layout, repository, &entry.digest)).await?;
    }
    let manifest = layout.manifest(&entry.digest).map_err(layout_error)?;
    let (executable, envelope) = plugin_layers(&manifest, artifact.size).map_err(refused)?;
    if !layout.has(&envelope.digest) {
        let (digest, size) = (&envelope.digest, envelope.size);
        or_cancelled(work, pull_blob(registry, &layout, repository, digest, size)).await?;
    }
    let blob = (repository, &envelope.digest, envelope.size);
    let envelope = verified(work, &layout, blob, sink).await?;
    let mut bytes = Vec::new();
    let read = envelope.take(ENVELOPE_LIMIT).read_to_end(&mut bytes);
    read.doing(|| "cannot read the signature of the plugin".into())?;
    let statement = PluginStatement::verify(&bytes, &publisher).map_err(|error| {
        unverified(format!(
            "the publisher {} did not sign it: {error}; the vendor must publish it again with `stead plugins push`",
            artifact.publisher
        ))
    })?;
    let matches = statement.name == plugin.name
        && statement.version == plugin.version
        && statement.platform == platform
        && statement.executable == executable.digest
        && statement.size_bytes == executable.size;
    if !matches {
        let (name, version, of) = (&statement.name, &statement.version, &statement.platform);
        return Err(unverified(format!(
            "its publisher signed {name} {version} for {of} with the digest {}; the vendor must publish the plugin again",
            statement.executable
        ))
        .into());
    }
    // The runner pulls an executable only after it has verified the signature for it.
    if !is_complete {
        or_cancelled(work, pull(registry, &layout, repository, &entry.digest)).await?;
        let line = format!("pulled {repository}@{} for {platform}", artifact.digest);
        sink.line(Stream::Runner, line.as_bytes());
    }
    let blob = (repository, &executable.digest, executable.size);
    let file = verified(work, &layout, blob, sink).await?;
    layout.touch(&entry.digest, host::system_time());
    Ok(Published { file, digest: executable.digest.clone(), statement })
}

/// Compares the description of a started executable with the statement of its publisher. A
/// published version can have a suffix of its publication: `+` and a text.
pub(super) fn check_description(
    statement: &PluginStatement,
    described: &Described,
) -> Result<(), PluginError> {
    let suffix = statement.version.strip_prefix(&described.version);
    let is_version = suffix.is_some_and(|rest| rest.is_empty() || rest.starts_with('+'));
    if is_version && statement.protocols.contains(&described.protocol) {
        return Ok(());
    }
    Err(PluginError::Unverified(format!(
        "cannot use the plugin {}: its publisher signed version {} with the protocols {:?}, but the executable reports \
         version {} with protocol {}; the vendor must publish it again with `stead plugins push`",
        statement.name,
        statement.version,
        statement.protocols,
        described.version,
        described.protocol
    )))
}

/// Returns the index of the plugin. Pulls it if the layout has no copy, or only a corrupt one.
async fn index(
    work: &Work<'_>,
    layout: &Layout,
    artifact: &PluginArtifact,
) -> Result<PlatformIndex, Halt> {
    if let Ok(index) = layout.platform_index(&artifact.digest) {
        return Ok(index);
    }
    if layout.has(&artifact.digest) {
        layout.quarantine(&artifact.digest).map_err(layout_error)?;
    }
    let pulled = pull_manifest(&work.job.registry, layout, &artifact.repository, &artifact.digest);
    or_cancelled(work, pulled).await?;
    layout.platform_index(&artifact.digest).map_err(layout_error)
}

/// Returns the layers of a plugin: the executable and the envelope of its publisher. `size` is the
/// size of the whole artifact in the manifest of the job.
fn plugin_layers(manifest: &ArtifactManifest, size: u64) -> Result<(Blob, Blob), String> {
    let kind = manifest.image().artifact_type().as_ref();
    match manifest.layers() {
        [executable, envelope]
            if kind.is_some_and(|kind| kind.as_ref() == ARTIFACT_TYPE)
                && manifest.blobs().next() == Some(&Blob::empty())
                && executable.media_type.as_ref() == EXECUTABLE_TYPE
                && envelope.media_type.as_ref() == ENVELOPE_TYPE =>
        {
            if executable.size > EXECUTABLE_LIMIT || envelope.size > ENVELOPE_LIMIT {
                return Err(format!(
                    "its executable or its signature is too large: the limits are {EXECUTABLE_LIMIT} and {ENVELOPE_LIMIT} bytes"
                ));
            }
            if executable.size + envelope.size > size {
                return Err(format!(
                    "it exceeds the {size} bytes in the manifest of the job; the vendor must publish it again"
                ));
            }
            Ok((executable.clone(), envelope.clone()))
        }
        _ => Err(format!(
            "its OCI manifest does not have the artifact type {ARTIFACT_TYPE}; the vendor must publish the plugin again"
        )),
    }
}
