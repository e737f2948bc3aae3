//! Events of a data subject. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use crate::{actor::Actor, decider::Event};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SubjectEvent {
    /// The data of the subject is unreadable from now on. The server deletes the subject's key.
    Shredded {
        /// Actor of the decision.
        by: Actor,
        /// Reason that the actor gave.
        reason: String,
    },
    /// The server has erased all reachable copies of the key and of the data.
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
