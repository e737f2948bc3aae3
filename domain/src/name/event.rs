//! Events of a name. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use crate::decider::Event;

/// Event of a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NameEvent {
    /// An owner took the name.
    Taken {
        /// Id of the owner.
        owner: String,
    },
    /// The owner released the name.
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
