//! Plugins in manifests.
use domain::plugin::PinnedPlugin;
use schemas::{
    manifest::{PluginArtifact, PluginRef},
    plugin::artifact,
};

/// Returns the published plugin of a component type, if the config version uses one.
pub(crate) fn published(plugins: &[PinnedPlugin], kind: &str) -> Option<PluginRef> {
    let pinned = plugins.iter().find(|plugin| plugin.name == kind)?;
    let artifact = PluginArtifact {
        repository: artifact::repository(kind),
        digest: pinned.digest.clone(),
        size: pinned.size_bytes,
        publisher: pinned.publisher.clone(),
    };
    let (name, version) = (kind.into(), pinned.version.clone());
    Some(PluginRef { name, version, digest: None, artifact: Some(artifact) })
}
