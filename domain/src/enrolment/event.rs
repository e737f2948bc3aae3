//! Events of an enrolment token. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use super::{EnrolmentToken, Redemption};
use crate::{actor::Actor, decider::Event};

/// Event of an enrolment token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EnrolmentEvent {
    /// The token was issued.
    Issued(EnrolmentToken),
    /// A runner enrolled with the token.
    Redeemed(Redemption),
    /// The unused token was revoked.
    Revoked {
        /// Actor that decided.
        by: Actor,
        /// Reason that was given.
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
