//! The newest state of each component that this runner has seen, from its journal: an older one was restored.
use std::collections::BTreeMap;

use schemas::manifest;

use super::{StateMark, StateStore};
use crate::journal::{Entry, Fact};

/// What this runner knows of one component's state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownState {
    /// The newest one that it has seen. No lineage: none.
    pub newest: StateMark,
    /// Number of the vendor's last decision that it has taken.
    pub decision: u64,
}

/// Folds a journal into what is known of each component.
pub fn known(entries: &[Entry]) -> BTreeMap<String, KnownState> {
    let mut all: BTreeMap<String, KnownState> = BTreeMap::new();
    for Entry { fact, .. } in entries {
        if let Fact::StateSeen { component, lineage, serial, .. }
        | Fact::StateResolved { component, lineage, serial, .. } = fact
        {
            let known = all.entry(component.clone()).or_default();
            known.newest = StateMark { lineage: lineage.clone(), serial: *serial };
        }
        if let Fact::StateAccepted { component, lineage, serial, decision, .. } = fact {
            let newest = StateMark { lineage: Some(lineage.clone()), serial: *serial };
            all.insert(component.clone(), KnownState { newest, decision: *decision });
        }
    }
    all
}

/// Entries of a journal that a new file has to begin with, so that nothing newer is forgotten: of each component the last
/// decision and the last state.
pub fn carried(entries: Vec<Entry>) -> Vec<Fact> {
    let mut last: BTreeMap<(String, bool), (usize, Fact)> = BTreeMap::new();
    for (place, Entry { fact, .. }) in entries.into_iter().enumerate() {
        let key = if let Fact::StateSeen { component, .. } | Fact::StateResolved { component, .. } =
            &fact
        {
            (component.clone(), false)
        } else if let Fact::StateAccepted { component, .. } = &fact {
            (component.clone(), true)
        } else {
            continue;
        };
        last.insert(key, (place, fact));
    }
    let mut facts: Vec<_> = last.into_values().collect();
    facts.sort_unstable_by_key(|(place, _)| *place);
    facts.into_iter().map(|(_, fact)| fact).collect()
}

/// Message about a refused state.
#[derive(Debug, PartialEq, Eq)]
pub struct Outdated(pub String);

impl StateStore {
    /// Checks that the state is not older than the newest one that the vendor's log or this runner knows, and has its lineage.
    /// Returns the vendor's decision that this relies on, if this runner has not taken it before.
    ///
    /// A missing state is not looked at here.
    pub fn check_known(
        &self,
        mark: &StateMark,
        own: &KnownState,
        log: Option<&manifest::KnownState>,
    ) -> Result<Option<manifest::AcceptedState>, Outdated> {
        let Some(lineage) = &mark.lineage else { return Ok(None) };
        let accepted = log.and_then(|log| log.accepted.as_ref());
        let accepted = accepted.filter(|accepted| accepted.decision > own.decision);
        let of = |version: &manifest::StateVersion| StateMark {
            lineage: Some(version.lineage.clone()),
            serial: version.serial,
        };
        let newest = log.and_then(|log| log.newest.as_ref()).map(of);
        let own = match accepted {
            Some(accepted) => of(&accepted.version),
            None => own.newest.clone(),
        };
        for known in newest.into_iter().chain([own]) {
            let Some(known_lineage) = &known.lineage else { continue };
            if known_lineage != lineage || mark.serial < known.serial {
                let (name, file) = (&self.component, self.file());
                return Err(Outdated(format!(
                    "the state of {name} is not the newest one: it is serial {} of lineage {lineage}, and serial {} of \
                     lineage {known_lineage} is known; put that one into {}, or let the vendor accept this one: `stead \
                     installs accept-state INSTALL {name} --lineage {lineage} --serial {} --reason TEXT`",
                    mark.serial,
                    known.serial,
                    file.display(),
                    mark.serial,
                )));
            }
        }
        Ok(accepted.cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(lineage: &str, serial: u64) -> StateMark {
        StateMark { lineage: Some(lineage.into()), serial }
    }

    fn version(lineage: &str, serial: u64) -> manifest::StateVersion {
        manifest::StateVersion { lineage: lineage.into(), serial }
    }

    fn store() -> StateStore {
        StateStore::new(std::path::Path::new("/state"), "web")
    }

    #[test]
    fn an_older_state_and_another_lineage_are_refused_with_both_names() {
        let own = KnownState { newest: mark("l", 7), decision: 0 };
        let log = manifest::KnownState { newest: Some(version("l", 7)), accepted: None };
        let nothing = KnownState::default();
        for (own, log) in [(&own, None), (&nothing, Some(&log))] {
            let check = |mark: &StateMark| store().check_known(mark, own, log);
            assert_eq!(check(&mark("l", 7)), Ok(None));
            assert_eq!(check(&mark("l", 8)), Ok(None));
            let Outdated(why) = check(&mark("l", 3)).unwrap_err();
            assert!(why.contains("serial 3 of lineage l") && why.contains("serial 7 of"), "{why}");
            let Outdated(why) = check(&mark("other", 9)).unwrap_err();
            assert!(why.contains("lineage other") && why.contains("lineage l"), "{why}");
        }
    }

    #[test]
    fn a_decision_is_taken_once_and_only_for_what_it_names() {
        let own = KnownState { newest: mark("l", 7), decision: 1 };
        let accept = |serial, decision| manifest::KnownState {
            newest: Some(version("l", serial)),
            accepted: Some(manifest::AcceptedState { version: version("l", serial), decision }),
        };
        let check = |serial, log| store().check_known(&mark("l", serial), &own, Some(&log));
        assert_eq!(check(3, accept(3, 2)).unwrap().unwrap().decision, 2);
        // What follows the accepted one is good, too; what precedes it is not.
        assert!(check(4, accept(3, 2)).is_ok() && check(2, accept(3, 2)).is_err());
        // A decision that was taken before is not taken for a second restore.
        assert!(check(3, accept(3, 1)).is_err());
    }

    #[test]
    fn a_new_journal_file_begins_with_what_is_known() {
        let at = crate::host::now();
        let execution = domain::ids::ExecutionId(ulid::Ulid::nil());
        let seen = |component: &str, serial| Fact::StateSeen {
            execution,
            component: component.into(),
            lineage: Some("l".into()),
            serial,
        };
        let accepted = Fact::StateAccepted {
            execution,
            component: "web".into(),
            lineage: "l".into(),
            serial: 3,
            decision: 4,
        };
        let facts = [seen("web", 7), accepted, seen("db", 1), seen("web", 4)];
        let entry = |fact: Fact| Entry { at, fact };
        let entries: Vec<_> = facts.into_iter().map(entry).collect();
        let before = known(&entries);
        assert_eq!(before["web"], KnownState { newest: mark("l", 4), decision: 4 });
        let carried: Vec<_> = carried(entries).into_iter().map(entry).collect();
        assert_eq!((carried.len(), known(&carried)), (3, before));
    }
}
