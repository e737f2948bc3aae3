//! What can have happened to a subject. The names are on disk: add, never rename.
use serde::{Deserialize, Serialize};

use crate::{actor::Actor, decider::Event};

/// A fact about a subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SubjectEvent {
    /// Nobody reads what is kept of it from now on; its key is deleted.
    Shredded {
        /// Who decided.
        by: Actor,
        /// Why.
        reason: String,
    },
    /// The server has no copy of it left that it can reach.
    ErasureCompleted,
}

impl Event for SubjectEvent {
    fn name(&self) -> &'static str {
        match self {
            SubjectEvent::Shredded { .. } => "subject.shredded",
            SubjectEvent::ErasureCompleted => "subject.erasure_completed",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
