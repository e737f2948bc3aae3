//! What we know of an app.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{digest::Digest, ids::ComponentId};

/// A product that a vendor installs at customers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct App {
    /// By which people call it. Nothing before it is created.
    pub name: Option<String>,
    /// The config version that was published last.
    pub latest: Option<Published>,
    /// Every component there ever was, by name.
    pub components: BTreeMap<String, ComponentId>,
}

/// A published config version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// 1, 2, 3 …
    pub version: u32,
    /// The bytes of the app directory, a blob.
    pub bundle: Digest,
    /// Every component of it.
    pub components: Vec<PublishedComponent>,
}

/// A component as a config version has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedComponent {
    /// The same in every version.
    pub component: ComponentId,
    /// By which templates call it.
    pub name: String,
    /// The plugin that knows it.
    pub kind: String,
    /// Of its source.
    pub digest: Digest,
}

impl App {
    /// The config version that was published last; 0 before the first.
    pub fn version(&self) -> u32 {
        self.latest.as_ref().map_or(0, |latest| latest.version)
    }
}
