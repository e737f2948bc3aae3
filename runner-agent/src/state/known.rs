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
mod tests {
    use super::*;

    fn mark(lineage: &str, serial: u64) -> StateMark {
        StateMark { lineage: Some(lineage.into()), serial }
    }

    fn version(lineage: &str, serial: u64) -> manifest::StateVersion {
        manifest::StateVersion { lineage: lineage.into(), serial, digest: None }
    }

    fn store() -> StateStore {
        StateStore::new(std::path::Path::new("/state"), "web")
    }

    #[test]
    fn an_older_state_and_another_lineage_are_refused_with_both_versions() {
        let own = KnownState { newest: mark("l", 7), ..KnownState::default() };
        let log = manifest::KnownState { newest: Some(version("l", 7)), accepted: None };
        let nothing = KnownState::default();
        for (own, log) in [(&own, None), (&nothing, Some(&log))] {
            let check = |mark: &StateMark| store().check_known(mark, own, log);
            assert_eq!(check(&mark("l", 7)), Ok(None));
            assert_eq!(check(&mark("l", 8)), Ok(None));
            let StateRefusal(why) = check(&mark("l", 3)).unwrap_err();
            assert!(why.contains("serial 3 of lineage l") && why.contains("serial 7 of"), "{why}");
            let StateRefusal(why) = check(&mark("other", 9)).unwrap_err();
            assert!(why.contains("lineage other") && why.contains("lineage l"), "{why}");
        }
    }

    #[test]
    fn a_decision_applies_once_and_only_to_its_version() {
        let own = KnownState { newest: mark("l", 7), decision: 1, ..KnownState::default() };
        let accept = |serial, decision| manifest::KnownState {
            newest: Some(version("l", serial)),
            accepted: Some(manifest::AcceptedState { version: version("l", serial), decision }),
        };
        let check = |serial, log| store().check_known(&mark("l", serial), &own, Some(&log));
        assert_eq!(check(3, accept(3, 2)).unwrap().unwrap().decision, 2);
        // Serials after the accepted one are valid, earlier ones are not.
        assert!(check(4, accept(3, 2)).is_ok() && check(2, accept(3, 2)).is_err());
        // A decision that was applied before does not allow a second restore.
        assert!(check(3, accept(3, 1)).is_err());
    }

    #[test]
    fn an_accepted_state_of_a_recovery_is_the_oldest_one_that_is_used() {
        let (component, lineage) = ("web".into(), "l".into());
        let digest = format!("hmac-sha256:1:{}", "0a".repeat(32));
        let unproved = JournalEvent::StateUnproved { component, lineage, serial: 7, digest };
        let entries = vec![entry(unproved.clone())];
        let own = &known(&entries)["web"];
        assert_eq!((&own.newest, own.digest.is_some()), (&mark("l", 7), true));
        assert_eq!(store().check_known(&mark("l", 7), own, None), Ok(None));
        assert_eq!(store().check_known(&mark("l", 8), own, None), Ok(None));
        assert!(store().check_known(&mark("l", 6), own, None).is_err());
        assert!(store().check_known(&mark("m", 9), own, None).is_err());
        assert_eq!(carried(entries), [unproved]);
    }

    #[test]
    fn a_missing_known_state_is_refused() {
        let log = manifest::KnownState { newest: Some(version("l", 7)), accepted: None };
        let own = KnownState { newest: mark("l", 7), ..KnownState::default() };
        let (absent, nothing) = (StateMark::default(), KnownState::default());
        for (own, log) in [(&own, None), (&nothing, Some(&log))] {
            let StateRefusal(why) = store().check_known(&absent, own, log).unwrap_err();
            assert!(why.contains("serial 7 of lineage l is known"), "{why}");
            assert!(why.contains("state resolve web --nothing-exists"), "{why}");
        }
        assert_eq!(store().check_known(&absent, &nothing, None), Ok(None));
        let decided = &known(&[entry(seen("web", 7)), entry(resolved(None, 0))])["web"];
        assert_eq!(store().check_known(&absent, decided, Some(&log)), Ok(None));
        // After the next known state, a missing state is refused again.
        let again = &known(&[entry(resolved(None, 0)), entry(seen("web", 1))])["web"];
        assert!(store().check_known(&absent, again, None).is_err());
    }

    #[test]
    fn the_newest_serial_decreases_only_by_a_decision() {
        let newest = |events: &[JournalEvent]| {
            let entries: Vec<_> = events.iter().cloned().map(entry).collect();
            let now = known(&entries).remove("web").unwrap();
            let carried: Vec<_> = carried(entries).into_iter().map(entry).collect();
            assert_eq!(known(&carried)["web"], now, "{events:?}");
            now.newest
        };
        // given a plan that was recorded after an apply that began later
        assert_eq!(newest(&[seen("web", 8), seen("web", 7)]), mark("l", 8));
        assert_eq!(newest(&[seen("web", 8), of_lineage("k", 1), seen("web", 7)]), mark("l", 8));
        assert_eq!(newest(&[seen("web", 8), gone(), seen("web", 7)]), mark("l", 8));
        assert_eq!(newest(&[seen("web", 8), gone()]), StateMark::default());
        assert_eq!(newest(&[seen("web", 8), accepted(3, 1), seen("web", 4)]), mark("l", 4));
        let events = [accepted(3, 1), seen("web", 8), resolved(Some("l"), 5), seen("web", 4)];
        assert_eq!(newest(&events), mark("l", 5));
        // given a decision that was not carried out
        let reason = String::new();
        let resolving = JournalEvent::StateResolving {
            component: "web".into(),
            lineage: None,
            serial: 0,
            reason,
        };
        assert_eq!(newest(&[seen("web", 8), resolving]), mark("l", 8));
    }

    #[test]
    fn a_state_from_before_a_destroy_is_older() {
        let own = &known(&[entry(seen("web", 8)), entry(gone())])["web"];
        assert_eq!(store().check_known(&StateMark::default(), own, None), Ok(None));
        let StateRefusal(why) = store().check_known(&mark("l", 7), own, None).unwrap_err();
        assert!(why.contains("newest known state is serial 8 of lineage l"), "{why}");
        assert_eq!(store().check_known(&mark("k", 1), own, None), Ok(None));
    }

    #[test]
    fn other_content_of_the_newest_version_is_refused() {
        let digest = |key: u32, content: &str| format!("hmac-sha256:{key}:{content}");
        let fence = manifest::Fence { epoch: 1, position: 9 };
        let head = |serial: u64, digest: String| StateHead {
            lineage: "l".into(),
            serial,
            fence,
            digest,
            is_empty: false,
        };
        let recorded = Some(digest(1, "a"));
        let own =
            KnownState { newest: mark("l", 7), digest: recorded.clone(), ..KnownState::default() };
        let newest = Some(manifest::StateVersion { digest: recorded, ..version("l", 7) });
        let log = manifest::KnownState { newest, accepted: None };
        let nothing = KnownState::default();
        for (own, log, place) in
            [(&own, None, "this runner"), (&nothing, Some(&log), "the vendor's log")]
        {
            let check = |head: StateHead| store().check_digest(&head, own, log);
            check(head(7, digest(1, "a"))).unwrap();
            check(head(8, digest(1, "b"))).unwrap();
            // The digest of another key says nothing.
            check(head(7, digest(2, "b"))).unwrap();
            let why = check(head(7, digest(1, "b"))).unwrap_err().to_string();
            assert!(why.contains(place) && why.contains("--keep-current"), "{why}");
        }
        let unknown = manifest::KnownState { newest: Some(version("l", 7)), accepted: None };
        store().check_digest(&head(7, digest(1, "b")), &nothing, Some(&unknown)).unwrap();
    }

    #[test]
    fn a_new_journal_file_begins_with_the_known_states() {
        let events = [seen("web", 7), accepted(3, 4), seen("db", 1), seen("web", 4)];
        let entries: Vec<_> = events.into_iter().map(entry).collect();
        let before = known(&entries);
        assert_eq!((&before["web"].newest, before["web"].decision), (&mark("l", 4), 4));
        let carried: Vec<_> = carried(entries).into_iter().map(entry).collect();
        assert_eq!((carried.len(), known(&carried)), (3, before));
    }

    fn entry(event: JournalEvent) -> Entry {
        Entry { at: crate::host::now(), event }
    }

    fn execution() -> domain::ids::ExecutionId {
        domain::ids::ExecutionId(ulid::Ulid::nil())
    }

    fn seen(component: &str, serial: u64) -> JournalEvent {
        let (component, lineage) = (component.into(), Some("l".into()));
        JournalEvent::StateSeen { execution: execution(), component, lineage, serial, digest: None }
    }

    fn of_lineage(lineage: &str, serial: u64) -> JournalEvent {
        let (component, lineage) = ("web".into(), Some(lineage.into()));
        JournalEvent::StateSeen { execution: execution(), component, lineage, serial, digest: None }
    }

    fn gone() -> JournalEvent {
        let component = "web".into();
        JournalEvent::StateSeen {
            execution: execution(),
            component,
            lineage: None,
            serial: 0,
            digest: None,
        }
    }

    fn accepted(serial: u64, decision: u64) -> JournalEvent {
        let (component, lineage) = ("web".into(), "l".into());
        JournalEvent::StateAccepted { execution: execution(), component, lineage, serial, decision }
    }

    fn resolved(lineage: Option<&str>, serial: u64) -> JournalEvent {
        let (component, lineage) = ("web".into(), lineage.map(String::from));
        JournalEvent::StateResolved { component, lineage, serial, reason: "why".into() }
    }
}
