//! State of a component, folded from its events.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{digest::Digest, ids::AppId};

/// One deployable part of an app.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Component {
    /// Definition in the last config version that changed it; none before the first.
    pub definition: Option<Definition>,
    /// True if the newest config version does not have the component.
    pub retired: bool,
}

/// Identity and definition of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Definition {
    /// App of the component.
    pub app: AppId,
    /// Name that templates use.
    pub name: String,
    /// Plugin that handles the component.
    pub kind: String,
    /// Digest of everything that defines the component: its source, settings, files and plugin.
    pub definition: Digest,
    /// Config version of the last change.
    pub config_version: u32,
}
