//! What can have happened to a component. The names are on disk: add, never rename.
use serde::{Deserialize, Serialize};

use super::Definition;
use crate::{decider::Event, digest::Digest};

/// A fact about a component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ComponentEvent {
    /// It is there.
    Defined(Definition),
    /// It is another from this version on.
    Changed {
        /// Of everything that defines it: its source, its settings, files and plugin.
        definition: Digest,
        /// The plugin that knows it.
        kind: String,
        /// Which config version.
        config_version: u32,
    },
    /// It is gone from this version on.
    Retired {
        /// Which config version.
        config_version: u32,
    },
    /// It is there again from this version on.
    Restored {
        /// Of everything that defines it: its source, its settings, files and plugin.
        definition: Digest,
        /// The plugin that knows it.
        kind: String,
        /// Which config version.
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
