//! What we know of a component.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{digest::Digest, ids::AppId};

/// One deployable part of an app.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Component {
    /// As the last config version that changed it has it. Nothing before it is defined.
    pub definition: Option<Definition>,
    /// Whether the app no longer has it.
    pub retired: bool,
}

/// What a component is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Definition {
    /// Part of which app.
    pub app: AppId,
    /// By which templates call it.
    pub name: String,
    /// The plugin that knows it.
    pub kind: String,
    /// Of everything that defines it: its source, its settings, files and plugin.
    pub definition: Digest,
    /// Since which config version it is so.
    pub config_version: u32,
}
