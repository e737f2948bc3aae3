//! Proof of each stream in a bundle of several streams.

use crate::log;

use log::{Log, key, signer};
use proof::{
    bundle::{Annotations, Base64, Bundle, BundleError, Complete, PositionError, Subject},
    key::TrustedKey,
};
use proptest::prelude::*;

const ACME: &str = "install/acme";

/// Log of nine events. The events of the install are at 2, 4 and 7, those of run 1 at 3 and 5.
fn log() -> Log {
    Log::of(&["app/a", ACME, "run/1", ACME, "run/1", "install/b", ACME, "run/2", "install/b"])
}

fn subject(streams: &[&str]) -> Subject {
    Subject::Streams(streams.iter().map(ToString::to_string).collect())
}

fn history() -> Subject {
    subject(&[ACME, "run/1"])
}

fn keys() -> Vec<TrustedKey> {
    vec![TrustedKey::Verifier(signer(&key()))]
}

fn check(bundle: &Bundle) -> Result<Vec<(String, u64, Complete)>, BundleError> {
    let bytes = serde_json::to_vec(bundle).unwrap();
    let proven = Bundle::read(&bytes)?.check(&keys(), None)?;
    let all = proven.streams.into_iter();
    Ok(all.map(|stream| (stream.stream, stream.events, stream.complete)).collect())
}

#[test]
fn the_completeness_of_each_stream_depends_on_the_other_entries() {
    let log = log();
    let complete = |from| {
        let streams = check(&log.bundle(history(), None, from)).unwrap();
        let [(acme, 3, of_acme), (run, 2, of_run)] = &streams[..] else { panic!("{streams:?}") };
        assert_eq!((acme.as_str(), run.as_str()), (ACME, "run/1"));
        (of_acme.clone(), of_run.clone())
    };
    let unknown = |last| Complete::Unknown { last };
    assert_eq!(complete(None), (unknown(7), unknown(5)));
    // The bundle does not prove the end of the run if the other entries begin after the install's
    // last event.
    let from = Complete::FromSequences { from: 8 };
    assert_eq!(complete(Some(8)), (from, unknown(5)));
    let from = Complete::FromSequences { from: 6 };
    assert_eq!(complete(Some(6)), (from.clone(), from));
    assert_eq!(complete(Some(1)), (Complete::Whole, Complete::Whole));
    let weakest = log.bundle(history(), None, Some(8)).check(&keys(), None).unwrap();
    assert_eq!(weakest.complete, unknown(5));
}

#[test]
fn an_omitted_event_or_stream_is_detected() {
    let log = log();
    for from in [None, Some(1), Some(6)] {
        let mut bundle = log.bundle(history(), None, from);
        bundle.events.retain(|event| event.position != 3);
        let wrong = PositionError::Sequence { expected: 1, found: 2 };
        assert_eq!(check(&bundle), Err(BundleError::At { position: 5, wrong }));
    }
    // Presents the last event of the run as an entry of another stream.
    let mut bundle = log.bundle(history(), None, Some(4));
    bundle.events.retain(|event| event.position != 5);
    let entry = Base64(log.leaf(5).canonical());
    bundle.others.as_mut().unwrap().entries.insert(0, entry);
    let wrong = PositionError::LeftOut("run/1".into());
    assert_eq!(check(&bundle), Err(BundleError::At { position: 5, wrong }));
    // A named stream without events, and events of a stream that is not named.
    let mut bundle = log.bundle(history(), None, None);
    bundle.subject = subject(&[ACME, "run/1", "run/2"]);
    assert_eq!(check(&bundle), Err(BundleError::Empty("run/2".into())));
    bundle.subject = subject(&[ACME]);
    let found = check(&bundle).unwrap_err();
    assert!(
        matches!(found, BundleError::At { position: 3, wrong: PositionError::Subject(_) }),
        "{found}"
    );
    let gap = check(&log.bundle(history(), None, Some(9))).unwrap_err();
    assert!(matches!(gap, BundleError::At { position: 9, wrong: PositionError::Gap(7) }), "{gap}");
}

#[test]
fn stream_names_are_sorted_and_unique() {
    let log = log();
    for wrong in [&[][..], &["run/1", ACME], &[ACME, ACME, "run/1"]] {
        let mut bundle = log.bundle(history(), None, None);
        bundle.subject = subject(wrong);
        assert!(matches!(check(&bundle), Err(BundleError::Unreadable(_))), "{wrong:?}");
    }
}

#[test]
fn an_annotation_belongs_to_an_event_of_the_bundle() {
    let log = log();
    let annotated = |position| {
        let mut bundle = log.bundle(history(), None, None);
        let reasons = Some([(position, "because".to_owned())].into());
        bundle.annotations = Some(Annotations { names: None, reasons });
        bundle
    };
    assert!(check(&annotated(5)).is_ok());
    assert!(matches!(check(&annotated(6)), Err(BundleError::Unreadable(_))));
    // Each annotation has exactly one encoding: a second reason for a position and a leading zero
    // are rejected.
    let text = serde_json::to_string(&annotated(5)).unwrap();
    for other in ["\"5\":\"\",\"5\":\"because\"", "\"05\":\"because\""] {
        let changed = text.replace("\"5\":\"because\"", other);
        assert!(Bundle::read(changed.as_bytes()).is_err(), "{other}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Tests that a bundle of several streams has exactly one valid encoding: every changed byte is
    /// detected.
    #[test]
    fn any_changed_byte_is_detected(at in any::<prop::sample::Index>(), to in any::<u8>(), from in 0u64..8) {
        let log = log();
        let from = Some(from).filter(|from| *from > 0);
        let mut bytes = serde_json::to_vec(&log.bundle(history(), None, from)).unwrap();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        let checked = Bundle::read(&bytes).and_then(|changed| changed.check(&keys(), None));
        prop_assert!(checked.is_err(), "byte {} of {}", at, String::from_utf8_lossy(&bytes));
    }
}
