//! Tests that each change of a journal is detected with the number of the first wrong entry.
use ed25519_dalek::{SigningKey, VerifyingKey};
use proof::dsse::Envelope;

use super::*;

/// Returns the lines of a journal of ten entries.
fn journal_of_ten() -> (tempfile::TempDir, Data, Vec<Vec<u8>>) {
    let (dir, data, journal) = journal();
    for line in 2..=10 {
        journal.write(JournalEvent::Disabled { reason: format!("line {line}") }).unwrap();
    }
    let lines = texts(&data).unwrap();
    assert_eq!(lines.len(), 10);
    (dir, data, lines)
}

fn key() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

fn public() -> [VerifyingKey; 1] {
    [key().verifying_key()]
}

fn runner() -> domain::ids::RunnerId {
    "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap()
}

fn signed(data: &Data) -> Envelope {
    sign_head(&Journal::open(data).unwrap(), runner(), &key(), host::now()).unwrap().unwrap()
}

/// Changes the lines and returns the error.
fn error_after(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> ChainError {
    let (_dir, _data, mut lines) = journal_of_ten();
    assert!(examine(&lines).is_ok());
    change(&mut lines);
    examine(&lines).unwrap_err()
}

/// Returns another line for this number with a valid link, as an attacker would write it.
fn forged(lines: &[Vec<u8>], number: usize) -> Vec<u8> {
    let (_, last) = frame::decode(&lines[number - 2]).unwrap();
    let event = JournalEvent::Disabled { reason: "never said".into() };
    frame::encode(&Entry { at: host::now(), event }, &last).unwrap().0
}

#[test]
fn a_flipped_byte_is_found_at_every_position() {
    let (_dir, _data, lines) = journal_of_ten();
    for at in 0..lines[4].len() {
        let mut changed = lines.clone();
        changed[4][at] ^= 1;
        let wrong = examine(&changed).unwrap_err();
        // A line whose link is damaged is not an entry.
        assert_eq!(wrong.entry(), 5, "byte {at}: {wrong}");
    }
    let wrong = error_after(|lines| lines[4][70] ^= 1);
    assert_eq!(wrong, ChainError::Changed { number: 5 });
    assert!(wrong.to_string().contains("entry 5 was changed"), "{wrong}");
}

#[test]
fn a_deleted_entry_is_found() {
    assert_eq!(
        error_after(|lines| drop(lines.remove(4))),
        ChainError::Missing { number: 5, last: 5 }
    );
    assert_eq!(
        error_after(|lines| drop(lines.drain(4..7))),
        ChainError::Missing { number: 5, last: 7 }
    );
    assert_eq!(error_after(|lines| drop(lines.remove(0))), ChainError::Beginning { found: 2 });
}

#[test]
fn an_inserted_entry_is_found() {
    let copy = error_after(|lines| lines.insert(6, lines[4].clone()));
    assert_eq!(copy, ChainError::Twice { number: 5 });
    let forgery = error_after(|lines| lines.insert(4, forged(lines, 5)));
    assert_eq!(forgery, ChainError::Twice { number: 5 });
    let former = error_after(|lines| lines.insert(4, forged(lines, 3)));
    assert_eq!(former, ChainError::Twice { number: 3 });
    let plain = br#"{"at":"2026-01-01T00:00:00Z","entry":"enabled"}"#.to_vec();
    assert_eq!(
        error_after(|lines| lines.insert(4, plain.clone())),
        ChainError::Inserted { number: 5 }
    );
    assert_eq!(error_after(|lines| lines.push(plain)), ChainError::Inserted { number: 11 });
}

#[test]
fn a_replaced_entry_is_found() {
    assert_eq!(error_after(|lines| lines[4] = forged(lines, 5)), ChainError::Changed { number: 6 });
}

#[test]
fn swapped_entries_are_found() {
    assert_eq!(error_after(|lines| lines.swap(4, 5)), ChainError::Moved { number: 5, found: 6 });
    assert_eq!(error_after(|lines| lines.swap(4, 8)), ChainError::Moved { number: 5, found: 9 });
}

#[test]
fn a_truncated_entry_is_found() {
    assert_eq!(
        error_after(|lines| lines[4].truncate(40)),
        ChainError::Missing { number: 5, last: 5 }
    );
}

#[test]
fn a_signed_head_reveals_a_truncated_journal() {
    // given a head that another party stored
    let (_dir, data, mut lines) = journal_of_ten();
    let head = open_head(&signed(&data), &public()).unwrap();
    assert_eq!(head.entries, 10);
    // when the last line is truncated
    lines[9].truncate(30);
    let examined = examine(&lines).unwrap();
    // then the journal alone looks like one after a crash, and the head shows that an entry is
    // missing
    assert_eq!(examined.cut_short, 1);
    let wrong = examined.holds(&head).unwrap_err();
    assert_eq!((wrong.entry(), matches!(wrong, ChainError::CutOff { signed: 10, .. })), (10, true));
    // and the head shows that the end was rewritten
    lines[9] = forged(&lines, 10);
    let wrong = examine(&lines).unwrap().holds(&head).unwrap_err();
    assert!(matches!(wrong, ChainError::Rewritten { number: 10, .. }), "{wrong}");
    // and the head shows that another journal was begun
    let (_other, _data, journal) = journal();
    let lines = texts(&journal.data).unwrap();
    let wrong = examine(&lines).unwrap().holds(&head).unwrap_err();
    assert!(matches!(wrong, ChainError::Lost { signed: 10, .. }), "{wrong}");
}

#[test]
fn a_contradicted_head_is_not_overwritten() {
    // given a signed journal that an old copy replaced
    let (_dir, data, lines) = journal_of_ten();
    signed(&data);
    let mut old = lines[..6].join(&b'\n');
    old.push(b'\n');
    fs::write(data.path("journal.ndjson"), old).unwrap();
    // when two entries are written and signed
    for _ in 0..2 {
        Journal::open(&data).unwrap().write(JournalEvent::Enabled {}).unwrap();
        signed(&data);
    }
    // then the first head is still stored
    let contradicted = Heads::of(&data).contradicted().unwrap();
    assert_eq!(contradicted.iter().map(|head| head.entries).collect::<Vec<_>>(), [10]);
    let examined = examine(&texts(&data).unwrap()).unwrap();
    assert!(matches!(examined.holds(&contradicted[0]), Err(ChainError::CutOff { number: 9, .. })));
    let last = open_head(&Heads::of(&data).last().unwrap().unwrap(), &public()).unwrap();
    assert_eq!(examined.holds(&last), Ok(0));
}

#[test]
fn an_invalid_head_is_evidence_and_an_unreadable_one_is_not() {
    // given a journal whose head cannot be read
    let (_dir, data, _) = journal_of_ten();
    signed(&data);
    let (path, aside) = (data.path("journal.head"), data.path("aside"));
    fs::rename(&path, &aside).unwrap();
    fs::create_dir(&path).unwrap();
    // when the journal is signed again, then the unreadable head is an error and not evidence
    let sign = || sign_head(&Journal::open(&data).unwrap(), runner(), &key(), host::now());
    let error = sign().unwrap_err().to_string();
    assert!(error.contains("journal.head: "), "{error}");
    assert!(Heads::of(&data).contradicted().unwrap().is_empty());
    // and when the head can be read, then signing works again
    fs::remove_dir(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    assert!(sign().unwrap().is_some());
    assert!(Heads::of(&data).contradicted().unwrap().is_empty());
    // but a file without a head is evidence, whether it is empty, truncated or something else
    for (former, text) in ["", "{\"payload", "{}"].into_iter().enumerate() {
        fs::write(&path, text).unwrap();
        assert!(sign().unwrap().is_some());
        let names = fs::read_dir(data.root()).unwrap().map(|file| file.unwrap().file_name());
        let aside = names.filter(|name| name.to_string_lossy().starts_with("journal.head."));
        assert_eq!(aside.count(), former + 1, "{text}");
    }
}

/// Returns the journal of ten entries in two files, and the path of the older file.
fn in_two_files() -> (tempfile::TempDir, Data, PathBuf) {
    let (dir, data, lines) = journal_of_ten();
    let aside = data.path("journal.01ARZ3NDEKTSV4RRFFQ69G5FAV.ndjson");
    let write = |path: &std::path::Path, lines: &[Vec<u8>]| {
        fs::write(path, [&lines.join(&b'\n')[..], b"\n"].concat()).unwrap();
    };
    write(&aside, &lines[..6]);
    write(&data.path("journal.ndjson"), &lines[6..]);
    (dir, data, aside)
}

fn changed(path: &std::path::Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from));
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_start_verifies_the_current_file_and_a_command_all_files() {
    // given a journal with a rotated file
    let (_dir, data, aside) = in_two_files();
    assert_eq!(examine_all(&data).unwrap(), examine(&texts(&data).unwrap()));
    let entries = |examined: VerifiedJournal| examined.chains[0].entries();
    assert_eq!(examine_all(&data).unwrap().map(entries), Ok(10));
    assert_eq!(examine_current(&data).unwrap().map(entries), Ok(10));
    // when the rotated file is changed, then only the check of all files finds it
    changed(&aside, "line 3", "line X");
    assert_eq!(examine_all(&data).unwrap(), Err(ChainError::Changed { number: 3 }));
    assert!(examine_current(&data).unwrap().is_ok());
    // and both checks find a change of the current file
    changed(&aside, "line X", "line 3");
    changed(&data.path("journal.ndjson"), "line 9", "line X");
    assert_eq!(examine_all(&data).unwrap(), Err(ChainError::Changed { number: 9 }));
    assert_eq!(examine_current(&data).unwrap(), Err(ChainError::Changed { number: 9 }));
    // and a journal without a rotated file must begin with entry 1
    fs::remove_file(&aside).unwrap();
    assert_eq!(examine_current(&data).unwrap(), Err(ChainError::Beginning { found: 7 }));
}

#[test]
fn errors_are_found_across_files() {
    // An entry that follows in the next file is misplaced, and not missing.
    let (_dir, data, aside) = in_two_files();
    let text = fs::read_to_string(&aside).unwrap();
    let (kept, last) = text.trim_end().rsplit_once('\n').unwrap();
    fs::write(&aside, format!("{kept}\n")).unwrap();
    assert_eq!(examine_all(&data).unwrap(), Err(ChainError::Missing { number: 6, last: 6 }));
    let path = data.path("journal.ndjson");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}{last}\n")).unwrap();
    assert_eq!(examine_all(&data).unwrap(), Err(ChainError::Moved { number: 6, found: 7 }));
}

#[test]
fn an_exported_journal_is_verified_with_the_public_key() {
    let (_dir, data, lines) = journal_of_ten();
    let public_hex = hex::encode(public()[0].as_bytes());
    let write =
        |lines: &[Vec<u8>]| export(runner(), public_hex.clone(), signed(&data), lines).unwrap();
    let exported = verify(&write(&lines), &public()).unwrap();
    assert_eq!((exported.head.entries, exported.unsigned), (10, 0));
    // Another key does not verify the file, whatever key its header names.
    let other = [SigningKey::from_bytes(&[8; 32]).verifying_key()];
    let error = format!("{:#}", verify(&write(&lines), &other).unwrap_err());
    assert!(error.contains("not signed by the key"), "{error}");
    // The error names the missing, changed or rewritten entry.
    let mut fewer = lines.clone();
    fewer.pop();
    let error = verify(&write(&fewer), &public()).unwrap_err().to_string();
    assert!(error.contains("entry 10 is missing"), "{error}");
    let mut changed = lines.clone();
    changed[2][50] ^= 1;
    let error = verify(&write(&changed), &public()).unwrap_err().to_string();
    assert!(error.contains("entry 3"), "{error}");
    let (_dir, _data, others) = journal_of_ten();
    let error = verify(&write(&others), &public()).unwrap_err().to_string();
    assert!(error.contains("is missing: 10 of its entries"), "{error}");
}

#[test]
fn entries_after_the_head_count_as_unsigned() {
    let (_dir, data, _) = journal_of_ten();
    let head = signed(&data);
    Journal::open(&data).unwrap().write(JournalEvent::Enabled {}).unwrap();
    let lines = texts(&data).unwrap();
    let file = export(runner(), String::new(), head, &lines).unwrap();
    assert_eq!(verify(&file, &public()).unwrap().unsigned, 1);
}
