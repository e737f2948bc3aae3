//! Events of a subject. Their names and payloads are stored: from the first release on, add and never rename.
use serde::{Deserialize, Serialize};

use crate::{actor::Actor, decider::Event};

/// An event of a subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SubjectEvent {
    /// The key of the subject was deleted: its encrypted data cannot be read any more.
    Shredded {
        /// Principal that decided.
        by: Actor,
        /// Reason.
        reason: String,
    },
    /// The server deleted all copies of the subject's data that it can reach.
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
