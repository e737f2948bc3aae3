//! Events of a name. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use crate::decider::Event;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NameEvent {
    /// The name belongs to this owner from now on.
    Taken {
        /// Id of the owner, for example of an app or an install.
        owner: String,
    },
    /// The owner released the name, so another object can take it.
    Released {
        /// Id of the former owner.
        owner: String,
    },
}

impl Event for NameEvent {
    fn name(&self) -> &'static str {
        match self {
            NameEvent::Taken { .. } => "name.taken",
            NameEvent::Released { .. } => "name.released",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
