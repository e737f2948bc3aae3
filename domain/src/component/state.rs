//! State of a component, folded from its events.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{digest::Digest, ids::AppId};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Component {
    /// Definition since the last change. `None` before the component is defined.
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
    /// Name of the component in the config and in templates.
    pub name: String,
    /// Component type, which selects the plugin.
    pub kind: String,
    /// Digest of everything that defines the component: its source, settings, files and plugin.
    pub definition: Digest,
    /// Config version that last defined, changed, retired or restored the component.
    pub config_version: u32,
}
