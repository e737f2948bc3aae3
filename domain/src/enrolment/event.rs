//! Events of an enrolment. Their names and payloads are stored: from the first release on, add and never rename.
use serde::{Deserialize, Serialize};

use super::{Issue, Redemption};
use crate::{actor::Actor, decider::Event};

/// An event of an enrolment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EnrolmentEvent {
    /// An enrolment token was issued.
    Issued(Issue),
    /// A runner enrolled with the token.
    Redeemed(Redemption),
    /// The token was revoked before a runner used it.
    Revoked {
        /// Principal that decided.
        by: Actor,
        /// Reason.
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
