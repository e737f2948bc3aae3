//! Tests the reports and journal entries of an execution.
use super::*;

#[test]
fn an_output_above_the_limit_is_withheld_by_name() {
    let text = |length: usize| Value::String("x".repeat(length));
    let mut outputs: Map<String, Value> =
        (0..9).map(|at| (format!("part_{at}"), text(8 * 1024))).collect();
    outputs.insert("a_large_one".into(), text(MAX_OUTPUT_BYTES));
    outputs.insert("z_small_one".into(), text(10));
    let (fitting, withheld) = split_by_size(outputs);
    assert_eq!(
        withheld,
        ["a_large_one", "part_3", "part_4", "part_5", "part_6", "part_7", "part_8"]
    );
    assert!(fitting.contains_key("z_small_one"));
    assert!(serde_json::to_vec(&fitting).unwrap().len() <= OUTPUTS_BYTES + 1024);
}

#[test]
fn the_journal_has_the_result_even_if_the_final_report_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let data = data::Data::open(dir.path()).unwrap();
    let (job, execution) = (JobId(ulid::Ulid::nil()), ExecutionId(ulid::Ulid::nil()));
    let (journal, files) = (Journal::open(&data).unwrap(), data.job(execution));
    files.create().unwrap();
    let recorder = Recorder::begin((job, execution), files, &journal, vec![], 0).unwrap();
    // given a report file on a full disk
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    recorder.writer().reports = full;
    let last = Finished {
        outcome: schemas::runner::Outcome::Failed,
        exit_code: Some(7),
        signal: None,
        reason: None,
        detail: String::new(),
        forced: false,
        log_len: 0,
        log_sha256: String::new(),
        omitted: 0,
        not_ended: Vec::new(),
    };
    assert_eq!(recorder.writer().finish(last).unwrap_err().kind(), io::ErrorKind::StorageFull);
    let events = journal.read().unwrap().into_iter().map(|entry| entry.event);
    let exits = events
        .filter(|event| matches!(event, JournalEvent::Exited { exit, .. } if exit.code == Some(7)));
    assert_eq!(exits.count(), 1);
}

#[test]
fn only_an_ended_child_may_lack_a_journal_entry() {
    use nix::{
        errno::Errno,
        sys::resource::{Resource, getrlimit, setrlimit},
    };
    let dir = tempfile::tempdir().unwrap();
    let data = data::Data::open(dir.path()).unwrap();
    let (job, execution) = (JobId(ulid::Ulid::nil()), ExecutionId(ulid::Ulid::nil()));
    let (journal, files) = (Journal::open(&data).unwrap(), data.job(execution));
    files.create().unwrap();
    let mut recorder = Recorder::begin((job, execution), files, &journal, vec![], 0).unwrap();
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    assert!(recorder.child(ended.id(), Stop::default()).is_ok());
    // given a child that runs, and no file descriptor to read `/proc` with
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.min(256), hard).unwrap();
    let open: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let recorded = recorder.child(child.id(), Stop::default());
    drop(open);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    // then the recorder does not treat the child as ended
    assert_eq!(recorded.unwrap_err().raw_os_error(), Some(Errno::EMFILE as i32));
    assert!(recorder.child(child.id(), Stop::default()).is_ok());
    child.kill().unwrap();
    child.wait().unwrap();
    let events = journal.read().unwrap().into_iter().map(|entry| entry.event);
    let children: Vec<_> = events
        .filter_map(|event| {
            let JournalEvent::ChildStarted { process, .. } = event else { return None };
            Some(process.pid)
        })
        .collect();
    assert_eq!(children, [child.id()]);
}

#[test]
fn a_long_text_is_truncated_between_two_characters() {
    assert_eq!(truncate("short".into(), 5), "short");
    let cut = truncate("ä".repeat(4_000), MAX_DETAIL_BYTES);
    assert!(cut.len() <= MAX_DETAIL_BYTES && cut.ends_with("ä…"), "{}", cut.len());
}
