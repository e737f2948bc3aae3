//! Successor of a runner whose host is lost: it recovers the keys of the install on a new host.
//!
//! ```text
//! offer of the server ─▶ unwrap ─▶ fingerprint ─▶ accepted states ─▶ next generation ─▶ enrol
//! ```
//!
//! Everything before the next generation changes nothing. `recovery.json` records the recovery before
//! the keys are stored, so that the command continues an interrupted one, and an ordinary enrolment
//! does not register the keys without it.
mod accepted;

use std::{collections::BTreeMap, io, path::PathBuf};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::ids::{InstallId, RunnerId};
use install_keys::{
    Fingerprint, InstallKeys, Of, Recipient, RecoveryError, RecoveryIdentity, WrappedSeed,
};
use schemas::runner::{
    OfferedSeed, RecoveryOffer, RecoveryProof, StateHead, WRAPPED_SEED_BYTES, succession,
};
use serde::{Deserialize, Serialize};
use tracing::warn;

pub(crate) use self::accepted::{AcceptedHead, LostState};
use self::accepted::{accept, check_lost};
use super::{add, add_requested, reported};
use crate::{
    data::{self, Data},
    disable,
    enrol::{self, EnrolmentOptions, Identity},
    journal::{Journal, JournalEvent},
    keys::Keys,
    seed,
};

/// Recovery that the customer requests.
pub(crate) struct Request {
    pub identity: RecoveryIdentity,
    /// Fingerprint of the lost host's keys, from the customer's own records.
    pub fingerprint: Fingerprint,
    /// States that the customer accepts as the newest ones.
    pub accepted: Vec<AcceptedHead>,
    /// States that the lost host never sent, and that the customer gives up.
    pub lost: Vec<LostState>,
}

/// Keys that the offer of the server contains, and the states that the customer accepted.
#[derive(Debug)]
pub(crate) struct Recovered {
    former: RunnerId,
    former_keys: InstallKeys,
    /// Recipient of the identity. It stays one.
    recipient: Recipient,
    /// Other recipients of the former keys. The customer may have removed them since.
    others: Vec<Recipient>,
    accepted: BTreeMap<String, StateHead>,
    /// States that the customer gives up.
    lost: Vec<LostState>,
}

impl Recovered {
    /// Checks the offer of the server. Changes nothing.
    pub(crate) fn of(offer: &RecoveryOffer, request: &Request) -> anyhow::Result<Self> {
        let (former, former_keys, recipient) = unwrap(offer, request)?;
        let of = Of { log_id: &offer.log_id, install: offer.install };
        let signed = parsed(&offer.seeds).filter(|(_, seed)| seed.is_current(&of, &former_keys));
        let signed = signed.filter_map(|(_, seed)| seed.recipient().parse::<Recipient>().ok());
        let others = signed.filter(|other| *other != recipient).collect();
        let accepted = accept(offer, &request.accepted)?;
        check_lost(offer, &request.lost)?;
        let lost = request.lost.clone();
        Ok(Recovered { former, former_keys, recipient, others, accepted, lost })
    }

    /// Records the recovery with the next generation of the keys. From now on, an ordinary enrolment
    /// fails here: it would replace the keys of the install.
    pub(crate) fn begin(self, data: &Data, offer: &RecoveryOffer) -> anyhow::Result<Beginning> {
        let (log_id, install) = (offer.log_id.clone(), offer.install);
        let keys = self.former_keys.successor();
        check_new(data, &keys)?;
        let mut agent_keys = Keys::open(data)?;
        agent_keys.install = Some(keys.clone());
        let public = agent_keys.signed_install_keys().context("cannot read the recovered keys")?;
        let signature = self.former_keys.sign_succession(&succession(&log_id, install, &public));
        let (former, signature) = (self.former, STANDARD.encode(signature));
        let (accepted_states, wrapped_seeds) = (self.accepted.clone(), vec![]);
        let proof = RecoveryProof { former, signature, accepted_states, wrapped_seeds };
        let begun = Begun { log_id, install, proof };
        data::replace_json(&path(data), &begun)?;
        Ok(Beginning { recovered: self, begun, keys, agent_keys })
    }
}

/// Recovery that is recorded in the data directory, whose keys are not stored yet.
pub(crate) struct Beginning {
    recovered: Recovered,
    begun: Begun,
    keys: InstallKeys,
    agent_keys: Keys,
}

impl Beginning {
    /// Enrols this host as the successor, with these further recipients. The runner is disabled
    /// before its keys are stored, so that it never starts enabled.
    pub(crate) async fn enrol(
        self,
        data: &Data,
        (options, recipients): (EnrolmentOptions, &[Recipient]),
    ) -> anyhow::Result<(Identity, InstallKeys)> {
        let Beginning { recovered, begun, keys, agent_keys } = self;
        for other in recovered.others.iter().filter(|other| !recipients.contains(other)) {
            eprintln!(
                "{other} was a recipient of the lost host and is none of this one: add it with `stead-runner recovery add` if you \
                 trust it"
            );
        }
        disable::disable(data, &reason(&recovered), false)?;
        let journal = Journal::open(data)?;
        for (component, head) in &recovered.accepted {
            let (component, lineage) = (component.clone(), head.lineage.clone());
            let (serial, digest) = (head.serial, head.digest.clone());
            journal.write(JournalEvent::StateUnproved { component, lineage, serial, digest })?;
        }
        let of = Of { log_id: &begun.log_id, install: begun.install };
        add(data, &keys, &of, &recovered.recipient)?;
        recipients.iter().try_for_each(|to| add(data, &keys, &of, to).map(drop))?;
        seed::store(data, &keys)?;
        let identity = begun.enrol(data, &keys, &agent_keys, options).await?;
        Ok((identity, keys))
    }
}

/// Recovery that this host has begun.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    log_id: String,
    install: InstallId,
    /// Proof without the wrapped seeds.
    proof: RecoveryProof,
}

impl Begun {
    async fn enrol(
        self,
        data: &Data,
        keys: &InstallKeys,
        agent_keys: &Keys,
        options: EnrolmentOptions,
    ) -> anyhow::Result<Identity> {
        let of = Of { log_id: &self.log_id, install: self.install };
        // This host may be lost after the enrolment and before the end of the command.
        eprintln!(
            "Fingerprint of the install's keys after the recovery: {}",
            keys.public().fingerprint(&of)
        );
        let wrapped_seeds = reported(data, keys, &of)?;
        let recovery = Some((self.install, RecoveryProof { wrapped_seeds, ..self.proof }));
        enrol::enrol(data, agent_keys, &EnrolmentOptions { recovery, ..options }).await
    }
}

fn path(data: &Data) -> PathBuf {
    data.path("recovery.json")
}

/// Returns true if this host has begun a recovery.
pub(crate) fn has_begun(data: &Data) -> io::Result<bool> {
    path(data).try_exists()
}

/// Continues a recovery that was interrupted after it had stored the keys, with these further
/// recipients. Returns `None` if there is none, or if the server rejects it: then the customer accepts
/// the current states.
pub(crate) async fn resume(
    data: &Data,
    request: &Request,
    (options, recipients): (EnrolmentOptions, &[Recipient]),
) -> anyhow::Result<Option<(Identity, InstallKeys)>> {
    let (Some(begun), Some(keys)) = (data::read_json::<Begun>(&path(data))?, seed::open(data)?)
    else {
        return Ok(None);
    };
    let of = Of { log_id: &begun.log_id, install: begun.install };
    if !succeeds(&keys, &of, &request.fingerprint) {
        bail!(other_runner(data));
    }
    if !request.accepted.iter().all(|head| head.is_in(&begun.proof.accepted_states)) {
        warn!("Ignoring --accept-head: the interrupted recovery accepted other states");
    }
    add_requested(data, &keys, &of, recipients)?;
    if let Some(identity) = enrol::stored_identity(data)? {
        return Ok(Some((identity, keys)));
    }
    let mut agent_keys = Keys::open(data)?;
    agent_keys.install = Some(keys.clone());
    match begun.enrol(data, &keys, &agent_keys, options).await {
        Ok(identity) => Ok(Some((identity, keys))),
        Err(error) => {
            warn!(error = format!("{error:#}"), "Cannot continue the interrupted recovery");
            Ok(None)
        }
    }
}

/// Returns true if the keys succeed those with this fingerprint.
fn succeeds(keys: &InstallKeys, of: &Of<'_>, former: &Fingerprint) -> bool {
    let generation = keys.generation().checked_sub(1).filter(|generation| *generation > 0);
    let former_keys = generation.map(|generation| InstallKeys::new(keys.seed(), generation));
    former_keys.is_some_and(|keys| keys.public().fingerprint(of) == *former)
}

fn other_runner(data: &Data) -> String {
    format!(
        "cannot recover the install: {} belongs to a runner; pass a new directory with --data",
        data.root().display()
    )
}

/// Refuses a directory of another runner. One of this recovery was interrupted.
fn check_new(data: &Data, keys: &InstallKeys) -> anyhow::Result<()> {
    let other = seed::open(data)?.is_some_and(|other| other.public() != keys.public());
    if other || enrol::stored_identity(data)?.is_some() {
        bail!(other_runner(data));
    }
    Ok(())
}

/// Returns the reason why the runner is disabled, which its journal keeps.
fn reason(recovered: &Recovered) -> String {
    let unproved = match recovered.accepted.is_empty() {
        true => "",
        false => "; nothing proves that the accepted states are the newest ones",
    };
    let lost: Vec<String> = recovered.lost.iter().map(ToString::to_string).collect();
    let given_up = match lost.is_empty() {
        true => String::new(),
        false => format!("; given up: {}", lost.join(", ")),
    };
    format!(
        "recovered on a new host{unproved}{given_up}; check the install, then run `stead-runner enable`"
    )
}

/// Returns the wrapped seeds that can be read.
fn parsed(seeds: &[OfferedSeed]) -> impl Iterator<Item = (RunnerId, WrappedSeed)> {
    let fits = seeds.iter().filter(|seed| seed.wrapped.len() <= WRAPPED_SEED_BYTES);
    fits.filter_map(|seed| Some((seed.runner, serde_json::from_str(&seed.wrapped).ok()?)))
}

/// Recovers the seed with the fingerprint of the customer.
fn unwrap(
    offer: &RecoveryOffer,
    request: &Request,
) -> anyhow::Result<(RunnerId, InstallKeys, Recipient)> {
    let mut why: Option<RecoveryError> = None;
    for (runner, seed) in parsed(&offer.seeds) {
        let error = match seed.recover(offer.install, &request.fingerprint, &request.identity) {
            Ok(recovered) if recovered.log_id == offer.log_id => {
                let keys = InstallKeys::new(&recovered.seed, recovered.generation);
                return Ok((runner, keys, seed.recipient().parse()?));
            }
            Ok(_) => RecoveryError::OtherLog,
            Err(error) => error,
        };
        // A seed for another recipient says nothing about the one for this identity, and one of the
        // server's own says nothing about the expected one.
        if why.is_none()
            || matches!(why, Some(RecoveryError::WrongIdentity(_)))
            || matches!(error, RecoveryError::LaterGeneration { .. })
        {
            why = Some(error);
        }
    }
    match why {
        Some(why) => Err(why).context("cannot recover the install"),
        None if offer.seeds.is_empty() => bail!(
            "cannot recover the install: the server has no wrapped seed of the current keys of {install}. If a runner with new keys \
             enrolled after the host was lost, ask the vendor to revoke it, and for a token of `stead installs \
             create-enrolment-token {install} --recover-from RUNNER` with the lost runner. Else restore keys/install from your own \
             backup",
            install = offer.install
        ),
        None => bail!(
            "cannot recover the install: the wrapped seeds of the server are truncated or changed; restore keys/install from your \
             own backup, or ask the vendor for the reason"
        ),
    }
}

#[cfg(test)]
mod tests;
