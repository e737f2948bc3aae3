//! What can have happened to an enrolment. The names are on disk: add, never rename.
use serde::{Deserialize, Serialize};

use super::{Issue, Redemption};
use crate::{actor::Actor, decider::Event};

/// A fact about an enrolment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EnrolmentEvent {
    /// A token was given out.
    Issued(Issue),
    /// A runner came in with it.
    Redeemed(Redemption),
    /// Nobody comes in with it.
    Revoked {
        /// Who decided.
        by: Actor,
        /// Why.
        reason: String,
    },
}

impl Event for EnrolmentEvent {
    fn name(&self) -> &'static str {
        match self {
            EnrolmentEvent::Issued(_) => "enrolment.issued",
            EnrolmentEvent::Redeemed(_) => "enrolment.redeemed",
            EnrolmentEvent::Revoked { .. } => "enrolment.revoked",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
