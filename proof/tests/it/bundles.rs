//! Tests that a bundle proves its subject and that every change in it is detected.

use crate::log;

use ed25519_dalek::SigningKey;
use log::{LOG, Log, key, signer};
use proof::{
    bundle::{
        Base64, Bundle, BundleEncoder, BundleError, Complete, Content, PositionError, Subject,
    },
    checkpoint::Checkpoint,
    key::{TrustedKey, VerifierKey},
    leaf::Leaf,
};
use proptest::prelude::*;

const ACME: &str = "install/acme";

fn acme() -> Subject {
    Subject::Stream(ACME.into())
}

/// Log of nine events, with Acme's three events at 2, 4 and 6.
fn log() -> Log {
    Log::of(&["app/a", ACME, "install/b", ACME, "job/1", ACME, "job/1", "install/b", "job/2"])
}

fn keys() -> Vec<TrustedKey> {
    vec![TrustedKey::Verifier(signer(&key()))]
}

fn text(bundle: &Bundle) -> Vec<u8> {
    serde_json::to_vec(bundle).unwrap()
}

fn wrong(bundle: &Bundle) -> BundleError {
    Bundle::read(&text(bundle)).and_then(|bundle| bundle.check(&keys(), None)).unwrap_err()
}

#[test]
fn the_completeness_of_a_stream_depends_on_the_other_entries() {
    let log = log();
    let complete = |from| log.bundle(acme(), None, from).check(&keys(), None).unwrap().complete;
    assert_eq!(complete(None), Complete::Unknown { last: 6 });
    assert_eq!(complete(Some(7)), Complete::FromSequences { from: 7 });
    assert_eq!(complete(Some(3)), Complete::FromSequences { from: 3 });
    assert_eq!(complete(Some(1)), Complete::Whole);
    let one = log.bundle(Subject::Position(4), None, None).check(&keys(), None).unwrap();
    assert_eq!(one.complete, Complete::NotApplicable);
    // No position follows the last event of the log, so the bundle needs no other entries.
    let last = log.bundle(Subject::Stream("job/2".into()), None, Some(10));
    assert_eq!(last.check(&keys(), None).unwrap().complete, Complete::FromSequences { from: 10 });
}

#[test]
fn an_omitted_event_is_detected() {
    let log = log();
    for from in [Some(1), Some(7), None] {
        let mut bundle = log.bundle(acme(), None, from);
        bundle.events.remove(1);
        let expected = PositionError::Sequence { expected: 2, found: 3 };
        assert_eq!(wrong(&bundle), BundleError::At { position: 6, wrong: expected });
    }
    // Acme's last event: the other entries contain it, or have a gap, or differ from the log.
    let mut bundle = log.bundle(acme(), None, Some(1));
    bundle.events.pop();
    assert!(matches!(wrong(&bundle), BundleError::Count { expected: 7, found: 6, .. }));
    let entry = Base64(log.leaf(6).canonical());
    bundle.others.as_mut().unwrap().entries.insert(3, entry);
    let left_out = PositionError::LeftOut(ACME.into());
    assert_eq!(wrong(&bundle), BundleError::At { position: 6, wrong: left_out });
    let disguised = Leaf { aggregate_id: "other", ..log.leaf(6) };
    bundle.others.as_mut().unwrap().entries[3] = Base64(disguised.canonical());
    assert_eq!(wrong(&bundle), BundleError::Root { from: 1, to: 9 });
    let mut bundle = log.bundle(acme(), None, Some(7));
    bundle.events.pop();
    assert_eq!(wrong(&bundle), BundleError::At { position: 7, wrong: PositionError::Gap(4) });
    bundle.events.clear();
    assert_eq!(wrong(&bundle), BundleError::Empty(ACME.into()));
}

/// A dishonest server gives two events the same sequence, and puts only one of them into the
/// bundle. Only a bundle with all other entries of the log reveals the omitted event.
#[test]
fn two_events_with_one_sequence_are_detected_only_in_the_whole_log() {
    let mut log = Log::of(&["app/a", ACME]);
    log.push(ACME, 2);
    log.push(ACME, 2);
    log.push("job/1", 1);
    for (from, found) in [(5, None), (1, Some(PositionError::LeftOut(ACME.into())))] {
        let mut bundle = log.bundle(acme(), None, Some(from));
        bundle.events.remove(1);
        if from == 1 {
            bundle.others.as_mut().unwrap().entries.insert(1, Base64(log.leaf(3).canonical()));
        }
        let checked = Bundle::read(&text(&bundle)).unwrap().check(&keys(), None);
        let expected = found.map(|wrong| BundleError::At { position: 3, wrong });
        assert_eq!(checked.err(), expected);
    }
}

#[test]
fn an_event_without_content_is_proven_without_its_salt() {
    let log = log();
    let mut bundle = log.bundle(acme(), None, Some(7));
    for event in &mut bundle.events {
        let Leaf { payload_hash, metadata_hash, .. } = event.leaf().unwrap();
        let (payload, metadata) = (Base64(payload_hash), Base64(metadata_hash));
        event.content = Content::Hashes { payload, metadata };
    }
    assert!(Bundle::read(&text(&bundle)).unwrap().check(&keys(), None).is_ok());
    assert!(!String::from_utf8(text(&bundle)).unwrap().contains("salt"));
}

#[test]
fn a_stored_checkpoint_must_be_connected_to_the_bundle() {
    let log = log();
    let note = |log: &Log, size| log.checkpoint(size).sign(&key());
    let check = |since, from, stored: &str| {
        log.bundle(acme(), since, from)
            .check(&keys(), Some(stored))
            .map(|proven| proven.stored.unwrap().size)
    };
    assert_eq!(check(None, None, &note(&log, 9)), Ok(9));
    assert_eq!(check(Some(5), None, &note(&log, 5)), Ok(5));
    assert_eq!(check(None, Some(7), &note(&log, 6)), Ok(6));
    assert_eq!(check(None, Some(1), &note(&log, 3)), Ok(3));
    let unconnected = check(Some(4), Some(7), &note(&log, 5)).unwrap_err();
    assert!(matches!(unconnected, BundleError::Uncompared { stored: 5, size: 9, .. }));
    let mut rewritten = Log::of(&["app/b"]);
    for event in &log.events[1..] {
        rewritten.push(&log::name(event), event.sequence);
    }
    for (since, from, size) in
        [(None, None, 9), (Some(5), None, 5), (None, Some(7), 8), (None, Some(1), 1)]
    {
        let error = check(since, from, &note(&rewritten, size)).unwrap_err();
        assert!(matches!(error, BundleError::Rewritten { size: found, .. } if found == size));
    }
    let mut restored = log.checkpoint(9);
    restored.epoch = 2;
    let error = check(None, None, &restored.sign(&key())).unwrap_err();
    assert_eq!(error, BundleError::Epoch { older: 2, newer: 1 });
    let untrusted = log.checkpoint(9).sign(&SigningKey::from_bytes(&[9; 32]));
    assert!(matches!(check(None, None, &untrusted), Err(BundleError::Stored(_))));
}

#[test]
fn the_log_must_continue_the_older_checkpoint() {
    let log = log();
    let mut bundle = log.bundle(acme(), Some(5), None);
    let proven = bundle.check(&keys(), None).unwrap();
    assert_eq!(proven.since.map(|since| since.size), Some(5));
    let other = Log::of(&["x/1", "x/2", "x/3", "x/4", "x/5"]);
    bundle.since.as_mut().unwrap().checkpoint = other.checkpoint(5).sign(&key());
    assert!(matches!(wrong(&bundle), BundleError::Rewritten { size: 5, .. }));
    bundle.since.as_mut().unwrap().checkpoint.insert(0, 'x');
    assert!(matches!(wrong(&bundle), BundleError::Older(_)));
}

#[test]
fn a_key_is_trusted_in_each_text_form_and_no_other_key_is_trusted() {
    let bundle = log().bundle(acme(), None, None);
    let signer = signer(&key());
    let bare = hex::encode(signer.key.as_bytes());
    let fingerprint = proof::digest_text(&proof::sha256(signer.key.as_bytes()));
    for text in [signer.to_string(), bare, fingerprint] {
        let trusted: TrustedKey = text.parse().unwrap();
        bundle.check(&[trusted], None).unwrap();
    }
    let other =
        VerifierKey { key: SigningKey::from_bytes(&[9; 32]).verifying_key(), ..signer.clone() };
    let untrusted = bundle.check(&[TrustedKey::Verifier(other.clone())], None).unwrap_err();
    assert_eq!(untrusted, BundleError::UntrustedSigner { signer: signer.to_string() });
    // A bundle that names a trusted key, but was signed by an untrusted key.
    let mut named = bundle.clone();
    named.signer = other.to_string();
    let error = named.check(&[TrustedKey::Verifier(other)], None).unwrap_err();
    assert!(matches!(error, BundleError::Checkpoint(_)));
    // The same key for another log.
    let mut other_log = bundle;
    let other_signer = VerifierKey { name: "stead/01BX5ZZKBKACTAV9WEVGEMMVRZ".into(), ..signer };
    other_log.signer = other_signer.to_string();
    let error = other_log.check(&[TrustedKey::Bare(other_signer.key)], None).unwrap_err();
    assert!(matches!(error, BundleError::OtherLog { .. }));
}

#[test]
fn a_mistyped_verifier_key_is_rejected() {
    let text = signer(&key()).to_string();
    assert_eq!(text.parse::<VerifierKey>().unwrap(), signer(&key()));
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 1;
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        assert!(changed.parse::<VerifierKey>().is_err(), "{changed}");
    }
    for invalid in ["", "+", "a+b", "++", "sha256:12", &text[1..], "12"] {
        assert!(invalid.parse::<TrustedKey>().is_err(), "{invalid}");
    }
}

#[test]
fn the_encoded_pieces_form_the_bundle() {
    for from in [None, Some(1), Some(7), Some(10)] {
        let subject = if from == Some(10) { Subject::Stream("job/2".into()) } else { acme() };
        let bundle = log().bundle(subject, Some(3), from);
        let mut pieces = BundleEncoder::default();
        let mut text = pieces.head(&bundle).unwrap();
        for event in &bundle.events {
            text += &pieces.event(event).unwrap();
        }
        if let Some(others) = &bundle.others {
            text += &pieces.others(others.from, &others.edge).unwrap();
            for entry in &others.entries {
                text += &pieces.entry(entry.0.clone()).unwrap();
            }
        }
        text += pieces.end();
        assert_eq!(Bundle::read(text.as_bytes()).unwrap(), bundle);
    }
}

/// Impossible numbers must cause neither an overflow nor a long computation.
#[test]
fn extreme_numbers_are_rejected() {
    let log = log();
    let sized = |size| {
        let checkpoint = Checkpoint { size, ..log.checkpoint(9) };
        checkpoint.sign(&key())
    };
    for size in [0, 1, 8, 1 << 40, u64::MAX - 1, u64::MAX] {
        for from in [0, 1, 2, 7, u64::MAX] {
            let mut bundle = log.bundle(acme(), Some(5), Some(7));
            bundle.checkpoint = sized(size);
            bundle.others.as_mut().unwrap().from = from;
            wrong(&bundle);
            bundle.since = None;
            wrong(&bundle);
        }
    }
    let deep = "[".repeat(100_000);
    assert!(Bundle::read(deep.as_bytes()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Tests that a bundle has exactly one valid encoding: every changed byte is detected.
    #[test]
    fn any_changed_byte_is_detected(at in any::<prop::sample::Index>(), to in any::<u8>(), from in 0u64..8, since in 0u64..10) {
        let log = log();
        let from = Some(from).filter(|from| *from > 0);
        let bundle = log.bundle(acme(), Some(since).filter(|since| *since > 0), from);
        let mut bytes = text(&bundle);
        prop_assert!(Bundle::read(&bytes).unwrap().check(&keys(), None).is_ok());
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        let checked = Bundle::read(&bytes).and_then(|changed| changed.check(&keys(), None));
        prop_assert!(checked.is_err(), "byte {} of {}", at, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn an_entry_has_exactly_one_encoding(cut in 0usize..200, log_of in 1u64..9) {
        let log = log();
        let entry = log.leaf(log_of).canonical();
        prop_assert_eq!(Leaf::read(&entry), Some(log.leaf(log_of)));
        prop_assert_eq!(Leaf::read(&entry[..cut.min(entry.len() - 1)]), None);
        let longer = [&entry[..], b"x"].concat();
        prop_assert_eq!(Leaf::read(&longer), None);
    }
}

/// Further signatures are allowed. The check counts them, but cannot verify them.
#[test]
fn further_signatures_are_counted() {
    let log = log();
    let mut bundle = log.bundle(acme(), None, None);
    let other = log.checkpoint(9).sign(&SigningKey::from_bytes(&[9; 32]));
    bundle.checkpoint += other.rsplit_once("\n\n").unwrap().1;
    assert_eq!(bundle.check(&keys(), None).unwrap().other_signatures, 1);
    bundle.checkpoint += "and more\n";
    assert!(matches!(wrong(&bundle), BundleError::Checkpoint(_)));
    assert!(bundle.checkpoint.contains(LOG));
}
