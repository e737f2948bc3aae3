//! Events of a plugin. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use super::PluginVersion;
use crate::decider::Event;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PluginEvent {
    /// A version of the plugin was published. Config versions that are published later use it.
    Published(PluginVersion),
}

impl Event for PluginEvent {
    fn name(&self) -> &'static str {
        match self {
            PluginEvent::Published(_) => "plugin.published",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
