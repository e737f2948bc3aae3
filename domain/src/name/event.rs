//! Events of a name. Their names and payloads are stored: from the first release on, add and never rename.
use serde::{Deserialize, Serialize};

use crate::decider::Event;

/// An event of a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NameEvent {
    /// The name was taken.
    Taken {
        /// Id of the resource that has the name.
        owner: String,
    },
    /// The name was released.
    Released {
        /// Id of the resource that had the name.
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
