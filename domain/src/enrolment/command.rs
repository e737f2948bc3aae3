use super::{EnrolmentToken, Redemption};
use crate::actor::Actor;

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum EnrolmentCommand {
    Issue(EnrolmentToken),
    /// Enrol a runner with the token.
    Redeem(Redemption),
    /// Offer what a new host needs to recover the keys of the install.
    OfferRecovery,
    /// Revoke the unused token.
    Revoke {
        /// Actor that revokes the token.
        by: Actor,
        reason: String,
    },
}
