//! Events of a component. Their names and payloads are stored: from the first release on, add and never rename.
use serde::{Deserialize, Serialize};

use super::Definition;
use crate::{decider::Event, digest::Digest};

/// An event of a component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ComponentEvent {
    /// The component was defined.
    Defined(Definition),
    /// The definition changed in this config version.
    Changed {
        /// Digest of source, settings, files and plugin.
        definition: Digest,
        /// Name of the plugin.
        kind: String,
        /// The config version.
        config_version: u32,
    },
    /// This config version removed the component.
    Retired {
        /// The config version.
        config_version: u32,
    },
    /// This config version defines the component again.
    Restored {
        /// Digest of source, settings, files and plugin.
        definition: Digest,
        /// Name of the plugin.
        kind: String,
        /// The config version.
        config_version: u32,
    },
}

impl Event for ComponentEvent {
    fn name(&self) -> &'static str {
        match self {
            ComponentEvent::Defined(_) => "component.defined",
            ComponentEvent::Changed { .. } => "component.changed",
            ComponentEvent::Retired { .. } => "component.retired",
            ComponentEvent::Restored { .. } => "component.restored",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
