//! An enrolment token enrols one runner, either for one install or for builds.
//!
//! Until the token expires, the runner may repeat the enrolment with the same key, because the
//! first response may be lost. The aggregate rejects another key.
use crate::{
    decider::{Decider, Timestamp},
    ids::InstallId,
};

mod command;
mod error;
mod event;
mod state;
#[cfg(test)]
mod tests;
pub use command::EnrolmentCommand;
pub use error::EnrolmentError;
pub use event::EnrolmentEvent;
pub use state::{Enrolment, EnrolmentToken, Purpose, Redemption};

/// Maximum number of offers for a token.
const MAX_OFFERS: u32 = 100;

impl Decider for Enrolment {
    const NAME: &'static str = "enrolment";
    type Command = EnrolmentCommand;
    type Event = EnrolmentEvent;
    type Error = EnrolmentError;

    fn decide(
        &self,
        command: EnrolmentCommand,
        now: Timestamp,
    ) -> Result<Vec<EnrolmentEvent>, EnrolmentError> {
        use EnrolmentCommand::*;
        let Some(issue) = &self.issue else {
            return match command {
                Issue(issue) => Ok(vec![EnrolmentEvent::Issued(issue)]),
                Redeem(_) | OfferRecovery | Revoke { .. } => Err(EnrolmentError::NotFound),
            };
        };
        match command {
            Issue(new) if new == *issue => Ok(vec![]),
            Issue(_) => Err(EnrolmentError::AlreadyIssued),
            Redeem(_) | OfferRecovery if self.revoked => Err(EnrolmentError::Revoked),
            Redeem(_) | OfferRecovery if now >= issue.expires_at => Err(EnrolmentError::Expired),
            Redeem(redemption) => match &self.redeemed {
                None => Ok(vec![EnrolmentEvent::Redeemed(redemption)]),
                Some(existing) if existing.identity_key == redemption.identity_key => Ok(vec![]),
                Some(_) => Err(EnrolmentError::AlreadyUsed),
            },
            // Later, anyone who finds the used token could read the offer.
            OfferRecovery if self.redeemed.is_some() => Err(EnrolmentError::AlreadyUsed),
            OfferRecovery if self.offers >= MAX_OFFERS => {
                Err(EnrolmentError::TooManyOffers { most: MAX_OFFERS })
            }
            OfferRecovery => Ok(vec![EnrolmentEvent::RecoveryOffered]),
            Revoke { .. } if self.revoked => Ok(vec![]),
            Revoke { .. } if self.redeemed.is_some() => Err(EnrolmentError::AlreadyUsed),
            Revoke { by, reason } => Ok(vec![EnrolmentEvent::Revoked { by, reason }]),
        }
    }

    fn evolve(&mut self, event: EnrolmentEvent) {
        match event {
            EnrolmentEvent::Issued(issue) => self.issue = Some(issue),
            EnrolmentEvent::Redeemed(redemption) => self.redeemed = Some(redemption),
            EnrolmentEvent::RecoveryOffered => self.offers += 1,
            EnrolmentEvent::Revoked { .. } => self.revoked = true,
        }
    }

    fn customer(&self, _id: &str) -> Option<InstallId> {
        match self.issue.as_ref()?.purpose {
            Purpose::Install { install } => Some(install),
            Purpose::Build => None,
        }
    }
}
