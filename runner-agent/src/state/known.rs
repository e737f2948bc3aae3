//! Newest state of each component that this runner knows from its journal. A state with an older
//! serial indicates that a backup was restored.
use std::collections::BTreeMap;

use schemas::{manifest, runner::StateHead};

use super::{StateError, StateMark, StateStore};
use crate::journal::{Entry, JournalEvent};

/// Known state of one component.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownState {
    /// Newest lineage, with its highest serial. Without a lineage, this runner knows no state.
    pub newest: StateMark,
    /// True if the component has no resources: it was destroyed, or a user of the customer decided
    /// so.
    pub nothing: bool,
    /// Highest serial of each lineage since the last decision about the state.
    pub highest: BTreeMap<String, u64>,
    /// Number of the last decision of the vendor that this runner applied.
    pub decision: u64,
    /// Keyed digest of the newest state, if this runner wrote or read it.
    pub digest: Option<String>,
}

impl KnownState {
    /// Records a state that this runner has seen. The serial of a lineage never decreases: a plan
    /// can be recorded after an apply that began later.
    fn record_seen(&mut self, lineage: Option<&String>, serial: u64, digest: Option<&String>) {
        self.nothing = lineage.is_none();
        let is_newer = self.newest.lineage.as_ref() != lineage || self.newest.serial <= serial;
        if is_newer {
            self.digest = digest.cloned();
        }
        self.newest = lineage.map_or_else(StateMark::default, |lineage| {
            let highest = self.highest.entry(lineage.clone()).or_default();
            *highest = serial.max(*highest);
            StateMark { lineage: Some(lineage.clone()), serial: *highest }
        });
    }

    /// Records a decision about the state. The decision replaces all earlier records.
    fn decide(&mut self, lineage: Option<&String>, serial: u64) {
        self.highest.clear();
        self.record_seen(lineage, serial, None);
    }
}

/// Folds a journal into the known state of each component. A decision that was not carried out
/// changes nothing.
pub fn known(entries: &[Entry]) -> BTreeMap<String, KnownState> {
    let mut all: BTreeMap<String, KnownState> = BTreeMap::new();
    for Entry { event, .. } in entries {
        if let JournalEvent::StateSeen { component, lineage, serial, digest, .. } = event {
            let known = all.entry(component.clone()).or_default();
            known.record_seen(lineage.as_ref(), *serial, digest.as_ref());
        } else if let JournalEvent::StateResolved { component, lineage, serial, .. } = event {
            all.entry(component.clone()).or_default().decide(lineage.as_ref(), *serial);
        } else if let JournalEvent::StateUnproved { component, lineage, serial, digest } = event {
            let known = all.entry(component.clone()).or_default();
            known.decide(Some(lineage), *serial);
            known.digest = Some(digest.clone());
        } else if let JournalEvent::StateAccepted { component, lineage, serial, decision, .. } =
            event
        {
            let known = all.entry(component.clone()).or_default();
            known.decide(Some(lineage), *serial);
            known.decision = *decision;
        }
    }
    all
}

/// Reason to copy an entry about a component's state to the next journal file.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    LastAccepted,
    LastResolved,
    HighestOf(String),
    LastSeen,
}

/// Returns the entries with which a new journal file must begin. The new file then gives the same
/// known states as the old one.
pub fn carried(entries: Vec<Entry>) -> Vec<JournalEvent> {
    let mut all: BTreeMap<String, BTreeMap<Reason, (usize, JournalEvent)>> = BTreeMap::new();
    for (index, Entry { event, .. }) in entries.into_iter().enumerate() {
        if let JournalEvent::StateAccepted { component, .. } = &event {
            let by_reason = all.entry(component.clone()).or_default();
            by_reason.clear();
            by_reason.insert(Reason::LastAccepted, (index, event));
        } else if let JournalEvent::StateResolved { component, .. }
        | JournalEvent::StateUnproved { component, .. } = &event
        {
            let by_reason = all.entry(component.clone()).or_default();
            by_reason.retain(|reason, _| *reason == Reason::LastAccepted);
            by_reason.insert(Reason::LastResolved, (index, event));
        } else if let JournalEvent::StateSeen { component, lineage, serial, .. } = &event {
            let by_reason = all.entry(component.clone()).or_default();
            if let Some(lineage) = lineage {
                let highest = Reason::HighestOf(lineage.clone());
                let is_higher = by_reason.get(&highest).is_none_or(|(_, existing)| {
                    !matches!(existing, JournalEvent::StateSeen { serial: existing_serial, .. } if existing_serial > serial)
                });
                if is_higher {
                    by_reason.insert(highest, (index, event.clone()));
                }
            }
            by_reason.insert(Reason::LastSeen, (index, event));
        }
    }
    let mut events: Vec<_> = all.into_values().flat_map(BTreeMap::into_values).collect();
    events.sort_unstable_by_key(|(index, _)| *index);
    events.dedup_by_key(|(index, _)| *index);
    events.into_iter().map(|(_, event)| event).collect()
}

/// Returns true if both name the same serial of a lineage, and digests of one key differ.
pub(super) fn has_other_content(known: &manifest::StateVersion, head: &StateHead) -> bool {
    let key = |digest: &str| digest.rsplit_once(':').map(|(key, _)| key.to_owned());
    let is_other = |digest: &String| *digest != head.digest && key(digest) == key(&head.digest);
    (&known.lineage, known.serial) == (&head.lineage, head.serial)
        && known.digest.as_ref().is_some_and(is_other)
}

/// Reason for the refusal of a state, with the remedy.
#[derive(Debug, PartialEq, Eq)]
pub struct StateRefusal(pub String);

impl StateStore {
    /// Checks the state against the newest state in the vendor's log and on this runner. Refuses
    /// the absence of a known state, another lineage and an older state. Returns the vendor's
    /// decision that allows the state, if this runner has not applied that decision before.
    pub fn check_known(
        &self,
        mark: &StateMark,
        own: &KnownState,
        log: Option<&manifest::KnownState>,
    ) -> Result<Option<manifest::AcceptedState>, StateRefusal> {
        let Some(lineage) = &mark.lineage else {
            return self.check_missing(own, log).map(|()| None);
        };
        let accepted = log.and_then(|log| log.accepted.as_ref());
        let accepted = accepted.filter(|accepted| accepted.decision > own.decision);
        let of = |version: &manifest::StateVersion| StateMark {
            lineage: Some(version.lineage.clone()),
            serial: version.serial,
        };
        let newest = log.and_then(|log| log.newest.as_ref()).map(of);
        let own = match accepted {
            Some(accepted) => of(&accepted.version),
            None => match own.highest.get(lineage) {
                // A state from before a destroy is older as well.
                Some(serial) if own.nothing => {
                    StateMark { lineage: Some(lineage.clone()), serial: *serial }
                }
                Some(_) | None => own.newest.clone(),
            },
        };
        for known in newest.into_iter().chain([own]) {
            let Some(known_lineage) = &known.lineage else { continue };
            if known_lineage != lineage || mark.serial < known.serial {
                let name = &self.component;
                return Err(StateRefusal(format!(
                    "cannot use the state of {name}: it is serial {} of lineage {lineage}, but the newest known state is serial {} of \
                     lineage {known_lineage}; restore it with `stead-runner state resolve {name} --restore FILE --reason TEXT`, or ask the vendor to accept this state: `stead \
                     installs accept-state INSTALL {name} --lineage {lineage} --serial {} --reason TEXT`",
                    mark.serial, known.serial, mark.serial,
                )));
            }
        }
        Ok(accepted.cloned())
    }

    /// Refuses a state that has the newest known version and other content.
    pub(super) fn check_digest(
        &self,
        head: &StateHead,
        own: &KnownState,
        log: Option<&manifest::KnownState>,
    ) -> Result<(), StateError> {
        let lineage = own.newest.lineage.clone();
        let of_own = lineage.map(|lineage| {
            let digest = own.digest.clone();
            manifest::StateVersion { lineage, serial: own.newest.serial, digest }
        });
        let of_log = log.and_then(|log| log.newest.clone());
        for (known, place) in [(of_own, "this runner"), (of_log, "the vendor's log")] {
            if known.is_some_and(|known| has_other_content(&known, head)) {
                return Err(self.with_choices(StateError::Blocked(format!(
                    "cannot use the state of {}: serial {} of lineage {} has other content than the one that {place} recorded",
                    self.component, head.serial, head.lineage
                ))));
            }
        }
        Ok(())
    }

    /// Refuses to treat a known state as absent. The vendor cannot allow it, because a plan without
    /// state would create everything a second time.
    fn check_missing(
        &self,
        own: &KnownState,
        log: Option<&manifest::KnownState>,
    ) -> Result<(), StateRefusal> {
        let of_log = log.and_then(|log| log.newest.as_ref());
        let of_log = of_log.map(|version| (version.lineage.as_str(), version.serial));
        let of_own = own.newest.lineage.as_deref().map(|lineage| (lineage, own.newest.serial));
        let known = of_own.or(of_log).filter(|_| !own.nothing);
        let Some((lineage, serial)) = known else { return Ok(()) };
        let name = &self.component;
        Err(StateRefusal(format!(
            "cannot use the state of {name}: it is neither on this host nor on the server, but serial {serial} of lineage {lineage} is known; \
             restore it with `stead-runner state resolve {name} --restore FILE --reason TEXT`; if nothing of {name} is left in the account, run `stead-runner state resolve {name} \
             --nothing-exists --reason TEXT` on the runner's host"
        )))
    }
}

#[cfg(test)]
mod tests;
