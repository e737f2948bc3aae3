use std::{collections::BTreeSet, fs, path::Path};

use super::{super::directory_with, *};
use crate::{File, Tree, schema};

#[path = "../../../tests/it/sample.rs"]
mod sample;

/// All keys that the reader knows, by file kind.
fn known() -> BTreeSet<(String, String)> {
    let schema = |kind: &str| serde_json::from_str(schema(kind).unwrap()).unwrap();
    let mut known = BTreeSet::new();
    for (_, path, text) in sample::samples(schema) {
        let mut app = Tree::default();
        app.insert(path, File { bytes: text.into(), executable: false }).unwrap();
        let reader = Reader::new(&app, &[]);
        directory_with(&reader);
        known.extend(reader.known_keys.borrow().iter().cloned());
    }
    known
}

#[test]
fn every_key_that_the_reader_knows_has_a_status() {
    let listed: BTreeSet<(String, String)> =
        STATUSES.keys().map(|(file, key)| (file.to_string(), key.to_string())).collect();
    let known = known();
    let missing: Vec<_> = known.difference(&listed).map(|(f, k)| format!("{f} {k}")).collect();
    assert!(missing.is_empty(), "without a status in keys.txt:\n{}", missing.join("\n"));
    let removed: Vec<_> = listed.difference(&known).map(|(f, k)| format!("{f} {k}")).collect();
    assert!(removed.is_empty(), "in keys.txt and unknown to the reader:\n{}", removed.join("\n"));
}

#[test]
fn every_line_of_the_key_list_is_read_and_the_lines_are_sorted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/app-config/keys.txt");
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), STATUSES.len());
    let keys: Vec<_> =
        lines.iter().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>()).collect();
    assert!(keys.is_sorted());
}

#[test]
fn every_warned_key_has_a_kind_and_every_kind_has_a_key_or_a_reader() {
    let used: BTreeSet<&str> = STATUSES
        .values()
        .filter_map(|status| match status {
            Status::Warned(kind) => Some(*kind),
            Status::ActedOn | Status::WithoutMeaningHere => None,
        })
        .collect();
    for kind in &used {
        assert!(KINDS.iter().any(|known| known.id == *kind), "{kind} is no kind");
    }
    for kind in KINDS.iter().filter(|kind| kind.per != Per::Reader) {
        assert!(used.contains(kind.id), "no key is warned of by {}", kind.id);
    }
    assert!(KINDS.is_sorted_by_key(|kind| kind.id));
}
