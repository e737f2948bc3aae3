//! What can have happened to a name. The names are on disk: add, never rename.
use serde::{Deserialize, Serialize};

use crate::decider::Event;

/// A fact about a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NameEvent {
    /// It belongs to somebody.
    Taken {
        /// The id of the thing.
        owner: String,
    },
    /// It is free again.
    Released {
        /// The id of the thing that had it.
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
