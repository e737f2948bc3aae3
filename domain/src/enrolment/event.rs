//! Events of an enrolment token. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use super::{EnrolmentToken, Redemption};
use crate::{actor::Actor, decider::Event};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EnrolmentEvent {
    /// A token was issued for one runner. The event contains only the digest of the secret.
    Issued(EnrolmentToken),
    /// A runner enrolled with the token.
    Redeemed(Redemption),
    /// A holder of the token read the wrapped seeds and the newest states of the install.
    RecoveryOffered,
    /// The unused token was revoked, so no runner can enrol with it.
    Revoked {
        /// Actor that revoked the token.
        by: Actor,
        /// Reason that the actor gave.
        reason: String,
    },
}

impl Event for EnrolmentEvent {
    fn name(&self) -> &'static str {
        match self {
            EnrolmentEvent::Issued(_) => "enrolment.issued",
            EnrolmentEvent::Redeemed(_) => "enrolment.redeemed",
            EnrolmentEvent::RecoveryOffered => "enrolment.recovery_offered",
            EnrolmentEvent::Revoked { .. } => "enrolment.revoked",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
