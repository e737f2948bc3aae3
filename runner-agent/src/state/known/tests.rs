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
    let resolving =
        JournalEvent::StateResolving { component: "web".into(), lineage: None, serial: 0, reason };
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
