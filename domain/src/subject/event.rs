//! Events of a data subject. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use crate::{actor::Actor, decider::Event};

/// Event of a data subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SubjectEvent {
    /// The data of the subject is unreadable from now on, and its key is deleted.
    Shredded {
        /// Actor that decided.
        by: Actor,
        /// Reason that was given.
        reason: String,
    },
    /// The server has no copy of the data left that it can reach.
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
