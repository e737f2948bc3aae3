//! What can be asked of an enrolment.
use super::{Issue, Redemption};
use crate::actor::Actor;

/// A request that may be refused.
#[derive(Debug, Clone, PartialEq)]
pub enum EnrolmentCommand {
    /// Give out a token.
    Issue(Issue),
    /// Let a runner in with it.
    Redeem(Redemption),
    /// Let nobody in with it.
    Revoke {
        /// Who decides.
        by: Actor,
        /// Why.
        reason: String,
    },
}
