//! Events of a component. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use super::Definition;
use crate::{decider::Event, digest::Digest};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ComponentEvent {
    /// The first config version with the component was published.
    Defined(Definition),
    /// A config version changed the definition or the type of the component.
    Changed {
        /// Digest of everything that defines the component: its source, settings, files and plugin.
        definition: Digest,
        /// Component type, which selects the plugin.
        kind: String,
        /// First config version with this definition.
        config_version: u32,
    },
    /// A config version removed the component.
    Retired {
        /// First config version without the component.
        config_version: u32,
    },
    /// A config version restored the removed component.
    Restored {
        /// Digest of everything that defines the component: its source, settings, files and plugin.
        definition: Digest,
        /// Component type, which selects the plugin.
        kind: String,
        /// First config version with the component again.
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
