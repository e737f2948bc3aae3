//! What we know of an app.
use std::collections::BTreeMap;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    ids::{BuildId, ComponentId},
};

/// A product that a vendor installs at customers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct App {
    /// By which people call it. Nothing before it is created.
    pub name: Option<String>,
    /// Every config version, by its number.
    pub versions: BTreeMap<u32, Published>,
    /// Every component there ever was, by name.
    pub components: BTreeMap<String, ComponentId>,
}

/// A published config version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Published {
    /// 1, 2, 3 …
    pub config_version: u32,
    /// The bytes of the app directory, a blob.
    pub bundle: Digest,
    /// Every component of it.
    pub components: Vec<PublishedComponent>,
}

/// A component as a config version has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PublishedComponent {
    /// The same in every version.
    pub component: ComponentId,
    /// By which templates call it.
    pub name: String,
    /// The plugin that knows it.
    pub kind: String,
    /// Of everything that defines it: its source, its settings, files and plugin.
    pub definition: Digest,
    /// The build whose artifact serves this version; the earlier one where nothing changed.
    pub build: BuildId,
}

impl App {
    /// The newest config version.
    pub fn latest(&self) -> Option<&Published> {
        self.versions.last_key_value().map(|(_, latest)| latest)
    }

    /// Its number; 0 before the first.
    pub fn version(&self) -> u32 {
        self.latest().map_or(0, |latest| latest.config_version)
    }
}
