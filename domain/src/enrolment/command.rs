//! Commands of an enrolment token.
use super::{EnrolmentToken, Redemption};
use crate::actor::Actor;

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum EnrolmentCommand {
    /// Issue the token.
    Issue(EnrolmentToken),
    /// Enrol a runner with the token.
    Redeem(Redemption),
    /// Revoke the unused token.
    Revoke {
        /// Actor that decides.
        by: Actor,
        reason: String,
    },
}
