//! A plugin implements one component type. Its stream id is its name, and each published version
//! has one artifact, which never changes.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    decider::{Decider, Timestamp},
    digest::Digest,
};

mod command;
mod error;
mod event;
#[cfg(test)]
mod tests;
pub use command::PluginCommand;
pub use error::PluginError;
pub use event::PluginEvent;

/// Published versions of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Plugin {
    /// Versions in the order of their publication.
    pub versions: Vec<PluginVersion>,
}

/// Published version of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PluginVersion {
    /// Name of the plugin, which is the component type.
    pub name: String,
    /// Version that the executable reports.
    pub version: String,
    /// Digest of the OCI index.
    pub digest: Digest,
    /// Total size in bytes: the index, its manifests and their blobs.
    pub size_bytes: u64,
    /// Platforms with an executable, as `os/architecture`.
    pub platforms: Vec<String>,
    /// Public key that signed the executables, 64 hexadecimal digits.
    pub publisher: String,
}

/// Version of a plugin that a config version uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PinnedPlugin {
    /// Name of the plugin, which is the component type.
    pub name: String,
    /// Version of the plugin.
    pub version: String,
    /// Digest of the OCI index.
    pub digest: Digest,
    /// Total size in bytes: the index, its manifests and their blobs.
    pub size_bytes: u64,
    /// Public key that signed the executables, 64 hexadecimal digits.
    pub publisher: String,
}

impl Plugin {
    /// Returns the version that was published last.
    pub fn newest(&self) -> Option<&PluginVersion> {
        self.versions.last()
    }
}

impl PluginVersion {
    /// Returns the pin of this version.
    pub fn pin(&self) -> PinnedPlugin {
        PinnedPlugin {
            name: self.name.clone(),
            version: self.version.clone(),
            digest: self.digest.clone(),
            size_bytes: self.size_bytes,
            publisher: self.publisher.clone(),
        }
    }
}

impl Decider for Plugin {
    const NAME: &'static str = "plugin";
    type Command = PluginCommand;
    type Event = PluginEvent;
    type Error = PluginError;

    fn decide(
        &self,
        command: PluginCommand,
        _: Timestamp,
    ) -> Result<Vec<PluginEvent>, PluginError> {
        let PluginCommand::Publish(new) = command;
        match self.versions.iter().find(|known| known.version == new.version) {
            Some(known) if known.digest == new.digest => Ok(vec![]),
            Some(known) => Err(PluginError::OtherContent {
                name: known.name.clone(),
                version: known.version.clone(),
                digest: known.digest.clone(),
            }),
            None => Ok(vec![PluginEvent::Published(new)]),
        }
    }

    fn evolve(&mut self, event: PluginEvent) {
        let PluginEvent::Published(version) = event;
        self.versions.push(version);
    }
}
