//! States that the customer accepts in a recovery, compared with those of the server.
use std::{collections::BTreeMap, fmt, str::FromStr};

use anyhow::bail;
use domain::state_version::StateVersion;
use schemas::runner::{RecoveryOffer, StateHead};

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

    pub(super) fn is_in(&self, states: &BTreeMap<String, StateHead>) -> bool {
        states.get(&self.component).is_some_and(|head| self.is(head))
    }
}

/// State that the lost host never sent, and that the customer gives up: `COMPONENT=LINEAGE/SERIAL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostState {
    component: String,
    lineage: String,
    serial: u64,
}

impl FromStr for LostState {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (component, version) = text.split_once('=')?;
            let (lineage, serial) = version.rsplit_once('/')?;
            let (component, lineage) = (component.into(), lineage.into());
            Some(LostState { component, lineage, serial: serial.parse().ok()? })
        };
        read().ok_or_else(|| format!("{text:?} is not in the form COMPONENT=LINEAGE/SERIAL"))
    }
}

impl fmt::Display for LostState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostState { component, lineage, serial } = self;
        write!(f, "{component}={lineage}/{serial}")
    }
}

impl LostState {
    fn is(&self, component: &str, version: &StateVersion) -> bool {
        (self.component.as_str(), &self.lineage, self.serial)
            == (component, &version.lineage, version.serial)
    }
}

/// Compares the states that the customer accepts with those of the server.
pub(super) fn accept(
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

/// Checks that the customer gives up each state that the lost host never sent.
pub(super) fn check_lost(offer: &RecoveryOffer, lost: &[LostState]) -> anyhow::Result<()> {
    let is_given_up =
        |component: &str, version: &StateVersion| lost.iter().any(|one| one.is(component, version));
    let missing: Vec<_> = offer
        .awaited
        .iter()
        .filter(|(component, version)| !is_given_up(component, version))
        .map(|(component, StateVersion { lineage, serial, .. })| {
            format!("  --give-up-state '{component}={lineage}/{serial}'")
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "cannot recover the install: the lost host reported states that it never sent, and that are newer than those of the server; \
         restore the host, or give up each of them, and ask the vendor to accept the state of the server \
         (`stead installs accept-state`):\n{}",
        missing.join("\n")
    )
}
