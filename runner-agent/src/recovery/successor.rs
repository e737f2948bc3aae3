//! Successor of a runner whose host is lost: it recovers the keys of the install on a new host.
//!
//! ```text
//! offer of the server ─▶ unwrap ─▶ fingerprint ─▶ accepted states ─▶ next generation ─▶ enrol
//! ```
//!
//! Everything before the next generation changes nothing. A repeated recovery with the same token
//! continues an interrupted one.
use std::{collections::BTreeMap, str::FromStr};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::ids::RunnerId;
use install_keys::{
    Fingerprint, InstallKeys, Of, Recipient, RecoveryError, RecoveryIdentity, WrappedSeed,
};
use schemas::runner::{
    OfferedSeed, RecoveryOffer, RecoveryProof, StateHead, WRAPPED_SEED_BYTES, succession,
};

use super::add;
use crate::{
    data::Data,
    disable,
    enrol::{self, EnrolmentOptions, Identity},
    journal::{Journal, JournalEvent},
    keys::Keys,
    seed,
};

/// What the customer has and expects.
pub(crate) struct Request {
    pub identity: RecoveryIdentity,
    /// Fingerprint of the lost host's keys, from the customer's own records.
    pub fingerprint: Fingerprint,
    /// States that the customer accepts as the newest ones.
    pub accepted: Vec<AcceptedHead>,
}

/// State that the customer accepts: `COMPONENT=LINEAGE/SERIAL/DIGEST`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AcceptedHead {
    component: String,
    lineage: String,
    serial: u64,
    digest: String,
}

impl FromStr for AcceptedHead {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (component, head) = text.split_once('=')?;
            let (head, digest) = head.rsplit_once('/')?;
            let (lineage, serial) = head.rsplit_once('/')?;
            let (component, lineage, digest) = (component.into(), lineage.into(), digest.into());
            Some(AcceptedHead { component, lineage, serial: serial.parse().ok()?, digest })
        };
        read().ok_or_else(|| format!("{text:?} is not in the form COMPONENT=LINEAGE/SERIAL/DIGEST"))
    }
}

impl AcceptedHead {
    fn is(&self, head: &StateHead) -> bool {
        (&self.lineage, self.serial, &self.digest) == (&head.lineage, head.serial, &head.digest)
    }
}

/// Keys that the offer of the server contains, and the states that the customer accepted.
#[derive(Debug)]
pub(crate) struct Recovered {
    former: RunnerId,
    former_keys: InstallKeys,
    /// Recipients of the former keys, which stay the recipients.
    recipients: Vec<Recipient>,
    accepted: BTreeMap<String, StateHead>,
}

impl Recovered {
    /// Checks the offer of the server. Changes nothing.
    pub(crate) fn of(offer: &RecoveryOffer, request: &Request) -> anyhow::Result<Self> {
        let (former, former_keys) = unwrap(offer, request)?;
        let of = Of { log_id: &offer.log_id, install: offer.install };
        // The server can add recipients of its own, but not sign their wrapped seeds.
        let signed = parsed(&offer.seeds).filter(|(_, seed)| seed.is_current(&of, &former_keys));
        let recipients = signed.filter_map(|(_, seed)| seed.recipient().parse().ok()).collect();
        let accepted = accept(offer, &request.accepted)?;
        Ok(Recovered { former, former_keys, recipients, accepted })
    }

    /// Enrols this host as the successor, with the next generation of the keys. The runner is
    /// disabled first, so that it never starts enabled.
    pub(crate) async fn enrol(
        self,
        data: &Data,
        offer: &RecoveryOffer,
        options: EnrolmentOptions,
    ) -> anyhow::Result<(Identity, InstallKeys)> {
        let of = Of { log_id: &offer.log_id, install: offer.install };
        let keys = self.former_keys.successor();
        check_new(data, &keys)?;
        disable::disable(data, &reason(&self.accepted), false)?;
        let journal = Journal::open(data)?;
        for (component, head) in &self.accepted {
            let (component, lineage) = (component.clone(), head.lineage.clone());
            let (serial, digest) = (head.serial, head.digest.clone());
            journal.write(JournalEvent::StateUnproved { component, lineage, serial, digest })?;
        }
        seed::store(data, &keys)?;
        self.recipients.iter().try_for_each(|to| add(data, &keys, &of, to).map(drop))?;
        let agent_keys = Keys::open(data)?;
        let public = agent_keys.signed_install_keys().context("cannot read the recovered keys")?;
        let signed = succession(of.log_id, of.install, &public);
        let signature = STANDARD.encode(self.former_keys.sign_succession(&signed));
        let proof =
            RecoveryProof { former: self.former, signature, accepted_states: self.accepted };
        let options = EnrolmentOptions { recovery: Some(proof), ..options };
        let identity = enrol::enrol(data, &agent_keys, &options).await?;
        Ok((identity, keys))
    }
}

/// Refuses a directory of another runner. One of this recovery was interrupted.
fn check_new(data: &Data, keys: &InstallKeys) -> anyhow::Result<()> {
    let other = seed::open(data)?.is_some_and(|other| other.public() != keys.public());
    if other || enrol::stored_identity(data)?.is_some() {
        bail!(
            "cannot recover the install: {} belongs to a runner; pass a new directory with --data",
            data.root().display()
        );
    }
    Ok(())
}

fn reason(accepted: &BTreeMap<String, StateHead>) -> String {
    let unproved = match accepted.is_empty() {
        true => "",
        false => "; nothing proves that the accepted states are the newest ones",
    };
    format!("recovered on a new host{unproved}; check the install, then run `stead-runner enable`")
}

/// Returns the wrapped seeds that can be read.
fn parsed(seeds: &[OfferedSeed]) -> impl Iterator<Item = (RunnerId, WrappedSeed)> {
    let fits = seeds.iter().filter(|seed| seed.wrapped.len() <= WRAPPED_SEED_BYTES);
    fits.filter_map(|seed| Some((seed.runner, serde_json::from_str(&seed.wrapped).ok()?)))
}

/// Recovers the seed with the fingerprint of the customer.
fn unwrap(offer: &RecoveryOffer, request: &Request) -> anyhow::Result<(RunnerId, InstallKeys)> {
    let mut why: Option<RecoveryError> = None;
    for (runner, seed) in parsed(&offer.seeds) {
        let error = match seed.recover(offer.install, &request.fingerprint, &request.identity) {
            Ok(recovered) if recovered.log_id == offer.log_id => {
                return Ok((runner, InstallKeys::new(&recovered.seed, recovered.generation)));
            }
            Ok(_) => RecoveryError::OtherLog,
            Err(error) => error,
        };
        // A seed for another recipient says nothing about the one for this identity.
        if why.is_none() || matches!(why, Some(RecoveryError::WrongIdentity(_))) {
            why = Some(error);
        }
    }
    match why {
        Some(why) => Err(why).context("cannot recover the install"),
        None if offer.seeds.is_empty() => bail!(
            "cannot recover the install: the server has no wrapped seed of {}; restore keys/install from your own backup",
            offer.install
        ),
        None => bail!(
            "cannot recover the install: the wrapped seeds of the server are truncated or changed; restore keys/install from your \
             own backup, or ask the vendor for the reason"
        ),
    }
}

/// Compares the states that the customer accepts with those of the server.
fn accept(
    offer: &RecoveryOffer,
    accepted: &[AcceptedHead],
) -> anyhow::Result<BTreeMap<String, StateHead>> {
    for head in accepted {
        let AcceptedHead { component, lineage, serial, .. } = head;
        let found = match offer.states.get(component) {
            Some(newest) if head.is(newest) => continue,
            Some(newest) => format!("{}, with the digest {}", newest.version(), newest.digest),
            None => "none".into(),
        };
        bail!(
            "cannot recover the install: you accept serial {serial} of lineage {lineage} of {component}, and the newest state of \
             the server is {found}; accept that one, or ask the vendor for the reason"
        );
    }
    let missing: Vec<_> = offer
        .states
        .iter()
        .filter(|(component, _)| accepted.iter().all(|head| head.component != **component))
        .map(|(component, head)| {
            let StateHead { lineage, serial, digest, .. } = head;
            format!("  --accept-head '{component}={lineage}/{serial}/{digest}'")
        })
        .collect();
    if !missing.is_empty() {
        bail!(
            "cannot recover the install: nothing proves which states are the newest ones; compare those of the server with your \
             records, and accept each that is right:\n{}",
            missing.join("\n")
        );
    }
    Ok(offer.states.clone())
}

#[cfg(test)]
mod tests;
