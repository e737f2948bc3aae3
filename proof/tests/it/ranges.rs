//! Tests that a range proves its events and that every change in its first line is detected.

use crate::log;

use log::{Log, key, signer};
use proof::{
    bundle::{BundleError, PositionError},
    checkpoint::Checkpoint,
    key::TrustedKey,
    range::{Head, Range},
};
use proptest::prelude::*;

fn log() -> Log {
    Log::of(&[
        "app/a",
        "install/a",
        "install/b",
        "install/a",
        "job/1",
        "install/a",
        "job/1",
        "install/b",
        "job/2",
    ])
}

fn keys() -> Vec<TrustedKey> {
    vec![TrustedKey::Verifier(signer(&key()))]
}

fn verify(log: &Log, from: u64, to: u64) -> Result<(), BundleError> {
    let mut range = Range::begin(log.head(from, to), &keys(), None)?;
    let mut link = log.head(from, to).chain.0;
    for position in from..=to {
        let leaf = log.leaf(position);
        link = proof::chain::next(&link, &leaf.hash());
        range.take(&leaf, &leaf.hash(), &link)?;
    }
    range.end().map(|_| ())
}

#[test]
fn every_range_is_proven_and_a_range_with_a_gap_is_rejected() {
    let log = log();
    for from in 1..=9 {
        for to in from..=9 {
            verify(&log, from, to).unwrap();
        }
    }
    let mut range = Range::begin(log.head(3, 7), &keys(), None).unwrap();
    let leaf = log.leaf(4);
    let skipped = range.take(&leaf, &leaf.hash(), &[0; 32]).unwrap_err();
    assert_eq!(skipped, BundleError::At { position: 3, wrong: PositionError::Missing(4) });
    let short = Range::begin(log.head(3, 7), &keys(), None).unwrap().end().unwrap_err();
    assert!(matches!(short, BundleError::Count { expected: 5, found: 0, .. }));
    // Events of another log with its own chain.
    let mut other = Log::of(&["x/1", "x/2", "x/3"]);
    other.push("x/4", 1);
    let mut range = Range::begin(log.head(3, 4), &keys(), None).unwrap();
    let mut link = log.head(3, 4).chain.0;
    for position in [3, 4] {
        let leaf = other.leaf(position);
        link = proof::chain::next(&link, &leaf.hash());
        range.take(&leaf, &leaf.hash(), &link).unwrap();
    }
    assert_eq!(range.end().unwrap_err(), BundleError::Root { from: 3, to: 4 });
}

#[test]
fn extreme_numbers_are_rejected() {
    let log = log();
    for size in [0, 1, 8, 1 << 40, u64::MAX] {
        let checkpoint = Checkpoint { size, ..log.checkpoint(9) }.sign(&key());
        for (from, to) in
            [(0, 9), (1, 9), (1, u64::MAX), (7, 3), (9, u64::MAX), (u64::MAX, u64::MAX)]
        {
            let head = Head { checkpoint: checkpoint.clone(), from, to, ..log.head(1, 9) };
            assert!(Range::begin(head, &keys(), None).and_then(Range::end).is_err());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Tests that every changed byte of an export's first line is detected. The chain link before
    /// the first event is covered only if the range starts at position 1.
    #[test]
    fn any_changed_byte_of_a_first_line_is_detected(at in any::<prop::sample::Index>(), to in any::<u8>(), from in 1u64..9) {
        let log = log();
        let head = log.head(from, 8);
        let mut line = serde_json::to_vec(&head).unwrap();
        let at = at.index(line.len());
        prop_assume!(line[at] != to);
        line[at] = to;
        let mut link = head.chain.0;
        let checked = Head::read(&line).and_then(|head| {
            let mut range = Range::begin(head, &keys(), None)?;
            for position in from..=8 {
                let leaf = log.leaf(position);
                link = proof::chain::next(&link, &leaf.hash());
                range.take(&leaf, &leaf.hash(), &link)?;
            }
            range.end()
        });
        prop_assert!(checked.is_err(), "byte {} of {}", at, String::from_utf8_lossy(&line));
    }
}
