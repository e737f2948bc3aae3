//! Tests of the journal with crashes, full disks, rotations and other versions.
mod tampered;

use super::*;

fn journal() -> (tempfile::TempDir, Data, Journal) {
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(dir.path()).unwrap();
    let journal = Journal::open(&data).unwrap();
    (dir, data, journal)
}

#[test]
fn reopening_keeps_the_id_and_the_entries() {
    let (_dir, data, journal) = journal();
    let event = JournalEvent::Disabled { reason: "holiday".into() };
    journal.write(event.clone()).unwrap();
    let again = Journal::open(&data).unwrap();
    assert_eq!(again.id().unwrap(), journal.id().unwrap());
    assert_eq!(again.read().unwrap().last().unwrap().event, event);
}

#[test]
fn an_incomplete_line_does_not_affect_later_entries() {
    let (_dir, data, journal) = journal();
    data::append(&journal.path).unwrap().write_all(br#"{"at":"2026-01-01T00:00:0"#).unwrap();
    let again = Journal::open(&data).unwrap();
    again.write(JournalEvent::Enabled {}).unwrap();
    let events: Vec<_> = again.read().unwrap().into_iter().map(|entry| entry.event).collect();
    assert_eq!(events.len(), 2);
    assert_eq!(events[1], JournalEvent::Enabled {});
}

#[test]
fn recover_retries_a_failed_write_and_restores_the_reserve() {
    // given a journal file that cannot be written
    let (_dir, data, journal) = journal();
    let aside = data.path("aside");
    fs::rename(&journal.path, &aside).unwrap();
    fs::create_dir(&journal.path).unwrap();
    assert!(journal.is_writable());
    assert!(journal.write(JournalEvent::Enabled {}).is_err());
    assert!(journal.recover().is_err() && !journal.is_writable());
    // when it can be written again
    fs::remove_dir(&journal.path).unwrap();
    fs::rename(&aside, &journal.path).unwrap();
    // then the journal is writable, and no entry was added
    journal.recover().unwrap();
    assert!(journal.is_writable());
    assert_eq!(journal.read().unwrap().len(), 1);
    assert_eq!(fs::metadata(journal.reserve()).unwrap().len(), RESERVE);
}

#[test]
fn an_entry_of_a_later_version_is_unknown() {
    let (_dir, _data, journal) = journal();
    let line = b"{\"at\":\"2026-01-01T00:00:00Z\",\"entry\":\"danced\",\"to\":1}\n";
    data::append(&journal.path).unwrap().write_all(line).unwrap();
    assert_eq!(journal.read().unwrap()[1].event, JournalEvent::Unknown);
}

#[test]
fn a_rotated_journal_can_be_read() {
    let (_dir, data, journal) = journal();
    journal.rotate(|_| Vec::new()).unwrap();
    let reason = "x".repeat(1024 * 1024);
    for _ in 0..5 {
        journal.write(JournalEvent::Disabled { reason: reason.clone() }).unwrap();
    }
    let id = journal.id().unwrap();
    journal.rotate(|_| Vec::new()).unwrap();
    assert_eq!(journal.read().unwrap().len(), 1);
    assert_eq!(journal.id().unwrap(), id);
    journal.write(JournalEvent::Enabled {}).unwrap();
    assert_eq!(read_all(&data).unwrap().len(), 8);
    // and both files are one chain, even if an agent died during the rotation
    let aside = data.path("journal.7ZZZZZZZZZZZZZZZZZZZZZZZZZ.ndjson");
    fs::hard_link(&journal.path, &aside).unwrap();
    let examined = examine(&texts(&data).unwrap()).unwrap();
    assert_eq!(examined.chains.len(), 1);
    assert_eq!(examined.chains[0].entries(), 8);
}

#[test]
fn reading_continues_after_a_rotation() {
    let (_dir, _data, journal) = journal();
    let mut position = Position::default();
    let mut read = || journal.read_on(&mut position).unwrap();
    assert_eq!(read().len(), 1);
    journal.write(JournalEvent::Enabled {}).unwrap();
    // A line that another process writes is read only when the line is complete.
    data::append(&journal.path).unwrap().write_all(b"{\"at\":\"2026-01-01T00:00:00Z\"").unwrap();
    assert_eq!(read().len(), 1);
    data::append(&journal.path).unwrap().write_all(b",\"entry\":\"enabled\"}\n").unwrap();
    assert_eq!((read().len(), read().len()), (1, 0));
    journal.write(JournalEvent::Disabled { reason: "x".repeat(5 * 1024 * 1024) }).unwrap();
    let claiming = JournalEvent::Claiming {
        job: "job_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
        claim_id: "c".into(),
    };
    let carried = Entry { at: host::now(), event: claiming };
    let event = JournalEvent::CarriedOver { original: Box::new(carried.clone()) };
    journal.rotate(|_| vec![event]).unwrap();
    assert_eq!(read()[1..], [carried]);
}

#[test]
fn concurrent_writers_keep_the_chain_valid() {
    let (_dir, data, journal) = journal();
    thread::scope(|scope| {
        for writer in 0..4 {
            let (data, journal) = (&data, &journal);
            scope.spawn(move || {
                for line in 0..25 {
                    let reason = format!("{writer} {line}");
                    let event = JournalEvent::Disabled { reason };
                    // Another process has its own journal object.
                    match line % 2 {
                        0 => journal.write(event).unwrap(),
                        _ => Journal::open(data).unwrap().write(event).unwrap(),
                    }
                }
            });
        }
    });
    assert_eq!(examine(&texts(&data).unwrap()).unwrap().chains[0].entries(), 101);
}

#[test]
fn a_chain_continues_after_an_incomplete_line() {
    let (_dir, data, journal) = journal();
    journal.write(JournalEvent::Enabled {}).unwrap();
    let text = fs::read(&journal.path).unwrap();
    let begin = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let second = text[begin..].to_vec();
    for cut in 0..second.len() {
        // given a journal whose last line is incomplete
        fs::write(&journal.path, [&text, &second[..cut]].concat()).unwrap();
        // when an entry is written
        Journal::open(&data).unwrap().write(JournalEvent::Enabled {}).unwrap();
        // then the chain is valid and no entry is lost. A line that lacks only its line end is
        // complete.
        let examined = examine(&texts(&data).unwrap());
        match cut + 1 < second.len() {
            true => assert_eq!(examined.unwrap().chains[0].entries(), 3, "{cut}"),
            false => {
                assert_eq!(examined, Err(ChainError::Twice { number: 2 }), "a copy of entry 2")
            }
        }
    }
}

#[test]
fn a_new_chain_covers_the_lines_of_an_older_program() {
    // given a journal of a program without the hash chain
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(dir.path()).unwrap();
    let path = data.path("journal.ndjson");
    let old = "{\"at\":\"2026-01-01T00:00:00Z\",\"entry\":\"opened\",\"journal_id\":\"J\"}\n\
               {\"at\":\"2026-01-01T00:00:01Z\",\"entry\":\"enabled\"}\n{\"at\":\"20";
    fs::write(&path, old).unwrap();
    assert_eq!(examine(&texts(&data).unwrap()).unwrap().unlinked, 2);
    // when this program writes an entry
    let journal = Journal::open(&data).unwrap();
    journal.write(JournalEvent::Enabled {}).unwrap();
    // then all entries can be read, and the chain covers the older lines
    assert_eq!(journal.id().unwrap(), "J");
    assert_eq!(read_all(&data).unwrap().len(), 4);
    let examined = examine(&texts(&data).unwrap()).unwrap();
    assert_eq!((examined.unlinked, examined.cut_short), (2, 1));
    assert_eq!(examined.chains[0].entries(), 2);
    // and the older program may write again
    let line = b"{\"at\":\"2026-01-01T00:00:02Z\",\"entry\":\"enabled\"}\n";
    data::append(&path).unwrap().write_all(line).unwrap();
    journal.write(JournalEvent::Enabled {}).unwrap();
    let examined = examine(&texts(&data).unwrap()).unwrap();
    assert_eq!((examined.unlinked, examined.chains[0].entries()), (3, 4));
    assert_eq!(examine_all(&data).unwrap(), Ok(examined));
    // A change of the older program's lines is detected as well.
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("00:00:01Z", "00:00:09Z", 1)).unwrap();
    let wrong = examine(&texts(&data).unwrap()).unwrap_err();
    assert_eq!(wrong, ChainError::BeforeChanged { number: 1 });
}

#[test]
fn a_new_chain_covers_all_older_files() {
    // given two files of a program without the hash chain
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(dir.path()).unwrap();
    let line = "{\"at\":\"2026-01-01T00:00:00Z\",\"entry\":\"opened\",\"journal_id\":\"J\"}\n";
    let aside = data.path("journal.01ARZ3NDEKTSV4RRFFQ69G5FAV.ndjson");
    fs::write(&aside, line.repeat(3)).unwrap();
    fs::write(data.path("journal.ndjson"), line).unwrap();
    // when this program writes an entry
    Journal::open(&data).unwrap().write(JournalEvent::Enabled {}).unwrap();
    // then the chain covers all lines
    assert_eq!(examine_all(&data).unwrap().unwrap().unlinked, 4);
    // and the check at a start, which does not read the older file, trusts the digest
    assert!(examine_current(&data).unwrap().is_ok());
    fs::write(&aside, line.repeat(2)).unwrap();
    assert_eq!(examine_all(&data).unwrap(), Err(ChainError::BeforeChanged { number: 1 }));
    // and without older lines the digest is that of a single newline
    let none = examine::chain_started("J".into(), &examine::Unlinked::default());
    let sha256 = proof::sha256(b"\n").into();
    assert_eq!(none, JournalEvent::ChainStarted { journal_id: "J".into(), lines: 0, sha256 });
}
