//! State of an app, folded from its events.
use std::collections::BTreeMap;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    ids::{BuildId, ComponentId},
    plugin::PinnedPlugin,
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct App {
    /// Name of the app. `None` before the app is created.
    pub name: Option<String>,
    pub versions: BTreeMap<u32, Published>,
    /// Components of all versions, including removed ones, by name.
    pub components: BTreeMap<String, ComponentId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Published {
    /// Number of the version, from 1.
    pub config_version: u32,
    /// Digest of the bundle, which is stored as a blob.
    pub bundle: Digest,
    /// All components of the version.
    pub components: Vec<PublishedComponent>,
    /// Published plugins that the version uses. The bundle can pin other plugins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<PinnedPlugin>,
}

/// Component in one config version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PublishedComponent {
    /// Id of the component, the same in every version.
    pub component: ComponentId,
    /// Name of the component in the config and in templates.
    pub name: String,
    /// Component type, which selects the plugin.
    pub kind: String,
    /// Digest of everything that defines the component: its source, settings, files and plugin.
    pub definition: Digest,
    /// Build whose artifact this version uses. An unchanged component keeps its earlier build,
    /// unless that build failed.
    pub build: BuildId,
}

impl App {
    /// Returns the newest config version.
    pub fn latest(&self) -> Option<&Published> {
        self.versions.last_key_value().map(|(_, latest)| latest)
    }

    /// Returns the number of the newest config version; 0 before the first.
    pub fn version(&self) -> u32 {
        self.latest().map_or(0, |latest| latest.config_version)
    }
}
