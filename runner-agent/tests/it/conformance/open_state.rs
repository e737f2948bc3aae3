//! Tests of the state with which a job begins: several hosts, a server that lost states or does not
//! respond, and interruptions at each step of a write.

use std::{fs, time::Duration};

use domain::ids::ExecutionId;
use runner_agent::{
    plugins::Cancel,
    state::{Basis, Decision, Reading, StateError},
};
use ulid::Ulid;
use zeroize::Zeroizing;

use super::{
    state_hosts::{Host, Quiet, copy, diverged, mark, other_state, state, version, write},
    state_server::{Reads, StateServer, Uploads},
};

#[tokio::test]
async fn an_interrupted_write_is_finished_by_the_next_job() {
    let server = StateServer::start(Uploads::Accept);
    let host = Host::new(&server);
    host.apply(10, &[1]).await;
    // Given the files of the host during the upload of serial 2.
    let (files, from) = (tempfile::tempdir().unwrap(), host.store().dir().to_owned());
    let to = files.path().to_owned();
    server.on_upload(move || copy(&from, &to));
    server.set_uploads(Uploads::Lose);
    let session = host.open(20).await.unwrap();
    write(&session, &state(2)).await;
    server.on_upload(|| ());
    server.set_uploads(Uploads::Accept);
    assert!(files.path().join("state.encrypted.next").exists());

    // when the shim died before the server had the state
    let killed = Host::with_files_of(&server, files.path());
    assert_eq!(killed.begins_with(30).await, mark(2));
    assert_eq!(server.versions(), [("l".to_owned(), 1), ("l".to_owned(), 2)]);
    // when it died afterwards
    let killed = Host::with_files_of(&server, files.path());
    assert_eq!(killed.begins_with(30).await, mark(2));
    assert_eq!((killed.pending(), server.versions().len()), (None, 2));
    // when it died after the rename
    let killed = Host::with_files_of(&server, files.path());
    let dir = killed.store().dir().to_owned();
    fs::rename(dir.join("state.encrypted.next"), dir.join("state.encrypted")).unwrap();
    assert_eq!(killed.begins_with(30).await, mark(2));
    assert_eq!((killed.pending(), server.versions().len()), (None, 2));
    // when another host has written since
    let other = Host::new(&server);
    other.apply(40, &[3]).await;
    server.restore(1);
    let session = Host::new(&server).open(45).await.unwrap();
    write(&session, &other_state(2)).await;
    let killed = Host::with_files_of(&server, files.path());
    let why = killed.refusal(50).await;
    assert!(why.contains("neither continues the other"), "{why}");
    assert_eq!(killed.pending(), Some(2), "the interrupted state was lost");
    assert_eq!(killed.resolve(Decision::KeepCurrent).await.unwrap(), mark(3));
}

#[tokio::test]
async fn an_incomplete_file_is_set_aside() {
    let server = StateServer::start(Uploads::Accept);
    let host = Host::new(&server);
    host.apply(10, &[1]).await;
    let next = host.store().dir().join("state.encrypted.next");
    let complete = fs::read(host.store().dir().join("state.encrypted")).unwrap();
    for length in [0, 10, complete.len() - 1] {
        fs::write(&next, &complete[..length]).unwrap();
        assert_eq!(host.begins_with(20).await, mark(1));
        assert!(!next.exists());
    }
    assert_eq!(host.files("resolved-"), 3);
}

#[tokio::test]
async fn a_write_ends_also_if_nobody_waits_for_it() {
    let server = StateServer::start(Uploads::Accept);
    let host = Host::new(&server);
    let session = host.open(10).await.unwrap();
    {
        let state = Zeroizing::new(state(1).into_bytes());
        let writing = session.write(state);
        // The client disconnects at the first opportunity.
        let polled = tokio::time::timeout(Duration::ZERO, writing).await;
        assert!(polled.is_err());
    }
    session.settle().await;
    assert_eq!(session.mark().await, mark(1));
    assert_eq!((host.pending(), server.versions().len()), (None, 1));
}

#[tokio::test]
async fn a_host_never_diverges_from_itself() {
    let server = StateServer::start(Uploads::Accept);
    let host = Host::new(&server);
    host.apply(10, &[1]).await;
    server.set_uploads(Uploads::Lose);
    let session = host.apply(20, &[2, 3]).await;
    // Later writes do not wait for the server, until all is uploaded.
    assert_eq!((host.pending(), session.mark().await), (Some(3), mark(3)));
    server.set_uploads(Uploads::Accept);
    assert_eq!(host.begins_with(30).await, mark(3));
    assert_eq!((host.pending(), server.versions().len()), (None, 2));

    // Given a full disk, on which the server alone gets serial 5 while 4 is pending, and a shim that dies
    // before the response.
    let session = host.open(40).await.unwrap();
    server.set_uploads(Uploads::Lose);
    write(&session, &state(4)).await;
    server.set_uploads(Uploads::StoreAndLose);
    let next = host.store().dir().join("state.encrypted.next");
    fs::create_dir(&next).unwrap();
    let state = Zeroizing::new(state(5).into_bytes());
    tokio::time::timeout(Duration::from_secs(1), session.write(state)).await.unwrap_err();
    server.set_uploads(Uploads::Accept);
    fs::remove_dir(&next).unwrap();
    // The journal proves that this host wrote it.
    assert_eq!((host.pending(), server.newest().unwrap().serial), (Some(4), 5));
    assert_eq!(host.begins_with(60).await, mark(5));
}

#[tokio::test]
async fn a_state_that_only_the_server_could_store_is_read_again() {
    let server = StateServer::start(Uploads::Accept);
    let host = Host::new(&server);
    host.apply(10, &[1]).await;
    let next = host.store().dir().join("state.encrypted.next");
    let full_disk = async |host: &Host, position: u64, serial: u64| {
        let session = host.open(position).await.unwrap();
        fs::create_dir(&next).unwrap();
        write(&session, &state(serial)).await;
        fs::remove_dir(&next).unwrap();
        assert_eq!(host.store().mark().unwrap(), mark(serial - 1));
        session
    };
    // The end of the apply stores it, if there is space again.
    let session = full_disk(&host, 20, 2).await;
    session.settle().await;
    assert_eq!((host.store().mark().unwrap(), host.pending()), (mark(2), None));
    // Otherwise the next job of this or another host reads it from the server.
    full_disk(&host, 30, 3).await;
    assert_eq!(Host::new(&server).begins_with(40).await, mark(3));
    assert_eq!(host.begins_with(40).await, mark(3));
}

#[tokio::test]
async fn a_restored_server_gets_the_lost_versions_again() {
    let server = StateServer::start(Uploads::Accept);
    let host = Host::new(&server);
    host.apply(10, &[1, 2, 3]).await;
    for kept in [1, 0] {
        server.restore(kept);
        assert_eq!(host.begins_with(20).await, mark(3));
        assert_eq!(server.newest().unwrap().serial, 3);
        assert_eq!(Host::new(&server).begins_with(30).await, mark(3));
    }
    // A state that the journal refuses does not replace the server's.
    server.restore(0);
    host.journal.seen(&mark(9), None);
    let why = host.refusal(40).await;
    assert!(why.contains("newest known state is serial 9"), "{why}");
    assert_eq!(server.newest(), None);
}

#[tokio::test]
async fn no_failed_read_selects_the_copy_of_the_host() {
    let server = StateServer::start(Uploads::Accept);
    let host = Host::new(&server);
    host.apply(10, &[1]).await;
    Host::new(&server).apply(20, &[2]).await;
    for (status, code) in
        [(503, "busy"), (429, "rate_limited"), (404, ""), (404, "not_found"), (401, ""), (502, "")]
    {
        server.set_reads(Reads::Respond(status, code));
        for host in [&host, &Host::new(&server)] {
            let error = host.open(30).await.map(drop).unwrap_err();
            let error = format!("{:#}", anyhow::Error::new(error));
            assert!(error.contains("the server did not respond"), "{status} {code}: {error}");
        }
    }
    server.set_reads(Reads::Answer);
    assert_eq!(host.begins_with(30).await, mark(2));
}

#[tokio::test]
async fn a_refusal_ends_a_job_at_its_start_without_a_wait() {
    let server = StateServer::start(Uploads::Accept);
    for (status, code, why) in [
        (403, "forbidden", "the server refused the call"),
        (412, "fenced", "its job or its install has ended"),
    ] {
        server.set_reads(Reads::Respond(status, code));
        let host = Host::new(&server);
        match host.open(10).await.map(drop) {
            Err(StateError::Refused(error)) => {
                assert!(error.contains(why), "{error}");
                assert!(!error.contains("stead-runner state resolve"), "{error}");
            }
            other => panic!("{code}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_stopped_job_does_not_wait_for_the_server() {
    let server = StateServer::start(Uploads::Accept);
    server.set_reads(Reads::Respond(503, "busy"));
    let host = Host::new(&server);
    let (known, cancel) = (&host.known(), &Cancel::default());
    let reading = Reading { remote: host.remote(), known, background: &Quiet, cancel };
    cancel.requested.cancel();
    match host.store().read_newest(&reading).await {
        // Other errors would fail the job with a reason of their own.
        Err(StateError::Stopped { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_sends_single_bytes_does_not_hold_up_a_job() {
    let server = StateServer::start(Uploads::Accept);
    Host::new(&server).apply(10, &[1]).await;
    server.set_reads(Reads::Drip);
    let open = async { Host::new(&server).open(20).await.map(drop) };
    let opened = tokio::time::timeout(Duration::from_secs(60), open).await.unwrap();
    let error = format!("{:#}", anyhow::Error::new(opened.unwrap_err()));
    assert!(error.contains("the server did not respond"), "{error}");
}

#[tokio::test]
async fn other_content_than_the_logs_is_refused_until_a_user_decides() {
    let (server, host) = diverged().await;
    // The log names the state of the first host, and the server returns the one of the second.
    let head = host.store().stored().unwrap().unwrap().head;
    let log = Some(head.version());
    server.record(log.clone());
    let third = Host { log, ..Host::new(&server) };
    let why = third.refusal(40).await;
    assert!(why.contains("other content than the one that the vendor's log recorded"), "{why}");
    assert_eq!(third.resolve(Decision::KeepCurrent).await.unwrap(), mark(3));
    assert_eq!(third.begins_with(50).await, mark(3));
}

#[tokio::test]
async fn a_job_does_not_finish_the_write_of_an_apply_that_still_runs() {
    let server = StateServer::start(Uploads::Accept);
    let host = Host::new(&server);
    host.apply(10, &[1]).await;
    let files = tempfile::tempdir().unwrap();
    let (from, to) = (host.store().dir().to_owned(), files.path().to_owned());
    server.on_upload(move || copy(&from, &to));
    host.apply(20, &[2]).await;
    server.on_upload(|| ());
    // Given a write in progress of an apply whose process lives.
    let killed = Host::with_files_of(&server, files.path());
    let execution = ExecutionId(Ulid::new());
    killed.store().begin_apply(execution, killed.dir.path(), true).unwrap();
    let next = killed.store().dir().join("state.encrypted.next");
    fs::copy(files.path().join("state.encrypted.next"), &next).unwrap();
    let mut apply = std::process::Command::new("sleep")
        .arg("60")
        .env("STEAD_EXECUTION", execution.to_string())
        .spawn()
        .unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let why = killed.refusal(30).await;
    apply.kill().unwrap();
    apply.wait().unwrap();
    assert!(why.contains("still runs: sleep (pid"), "{why}");
    assert!(next.exists());
    assert_eq!(killed.begins_with(30).await, mark(2));
    assert!(!next.exists());
}

/// Stores a state in the file of an earlier version.
fn store_plain(host: &Host, state: &str) {
    fs::write(host.store().dir().join("terraform.tfstate"), state).unwrap();
}

#[tokio::test]
async fn the_file_of_an_earlier_version_moves_only_if_it_continues_the_state() {
    let server = StateServer::start(Uploads::Accept);
    // A stale copy that the log refuses does not become the server's.
    let stale = Host { log: version(7), ..Host::new(&server) };
    store_plain(&stale, &state(3));
    let why = stale.refusal(10).await;
    assert!(why.contains("newest known state is serial 7"), "{why}");
    assert_eq!(server.newest(), None);
    // Without a log it does, and the newer copy of another host continues it.
    let stale = Host { log: None, ..stale };
    assert_eq!(stale.begins_with(10).await, mark(3));
    let right = Host::new(&server);
    store_plain(&right, &state(7));
    assert_eq!(right.begins_with(20).await, mark(7));
    assert_eq!((right.pending(), server.newest().unwrap().serial), (None, 7));
    // Another content of the same serial is the decision of a user.
    let other = Host::new(&server);
    store_plain(&other, &other_state(7));
    let why = other.refusal(30).await;
    assert!(why.contains("has another state than serial 7"), "{why}");
    // An invalid one is refused with a remedy, and without an upload.
    let invalid = Host::new(&StateServer::start(Uploads::Accept));
    store_plain(&invalid, &state(1).replace(r#""lineage":"l""#, r#""lineage":"""#));
    let why = invalid.refusal(10).await;
    assert!(why.contains("is invalid") && why.contains("--restore FILE"), "{why}");
    assert_eq!(invalid.files("state.encrypted.next"), 0);
}

#[tokio::test]
async fn a_decision_during_the_move_of_a_file_is_not_replaced() {
    let server = StateServer::start(Uploads::Accept);
    let host = Host::new(&server);
    store_plain(&host, &state(3));
    // Given a user who decides while the server stores the moved file.
    let file = host.dir.path().join("chosen");
    fs::write(&file, state(9)).unwrap();
    let store = host.store();
    server.on_upload(move || {
        let basis = Basis::default();
        let decision = Decision::Restore(file.clone());
        store.decide(decision, &basis).unwrap().carry_out().unwrap();
    });
    let why = host.refusal(10).await;
    server.on_upload(|| ());
    assert!(why.contains("was changed while the server stored it"), "{why}");
    let stored = host.store().stored().unwrap().unwrap();
    assert!(stored.is_decided && stored.head.serial == 10, "{stored:?}");
}

#[tokio::test]
async fn only_a_rejection_of_the_server_ends_a_write() {
    for (status, code, is_final) in [
        (400, "bad_request", false),
        (408, "body_incomplete", false),
        (409, "conflict", false),
        (409, "", false),
        (412, "precondition", false),
        (413, "", false),
        (429, "rate_limited", false),
        (503, "busy", false),
        (507, "state_quota_exceeded", false),
        (409, "state_conflict", true),
        // The job has ended for the server, which takes the state from the agent.
        (412, "fenced", false),
        (412, "state_fenced", true),
        (403, "forbidden", false),
        (413, "too_large", true),
    ] {
        let server = StateServer::start(Uploads::Respond(status, code));
        let host = Host::new(&server);
        let session = host.open(10).await.unwrap();
        let written = session.write(Zeroizing::new(state(1).into_bytes())).await;
        assert_eq!(written.is_err(), is_final, "{status} {code}: {written:?}");
        assert_eq!(host.pending(), (!is_final).then_some(1), "{status} {code}");
        assert_eq!(host.store().unresolved().unwrap().len(), usize::from(is_final));
    }
}

#[tokio::test]
async fn another_component_reads_the_newest_state_and_changes_nothing() {
    let server = StateServer::start(Uploads::Accept);
    let host = Host::new(&server);
    let read = async |host: &Host| {
        let reading = Reading {
            remote: host.remote(),
            known: &host.known(),
            background: &Quiet,
            cancel: &Cancel::default(),
        };
        let state = host.store().read_newest(&reading).await;
        state.map(|state| state.map(|state| String::from_utf8(state.to_vec()).unwrap()))
    };
    assert_eq!(read(&host).await.unwrap(), None);
    host.apply(10, &[1]).await;
    assert_eq!(read(&host).await.unwrap(), Some(state(1)));
    // Another host has written, and this one has an older copy or none.
    Host::new(&server).apply(90, &[2]).await;
    assert_eq!(read(&host).await.unwrap(), Some(state(2)));
    assert_eq!(read(&Host::new(&server)).await.unwrap(), Some(state(2)));
    assert_eq!(host.store().mark().unwrap(), mark(1));
    // Neither a server that does not respond nor a rolled-back one leads to the older copy.
    server.set_reads(Reads::Respond(404, ""));
    read(&host).await.unwrap_err();
    server.set_reads(Reads::Answer);
    server.restore(1);
    let digest = host.store().stored().unwrap().unwrap().head.digest;
    host.journal.seen(&mark(2), Some(digest));
    let error = read(&host).await.unwrap_err().to_string();
    assert!(error.contains("newest known state is serial 2"), "{error}");
    server.restore(0);
    let lost = Host { journal: host.journal.clone(), ..Host::new(&server) };
    let error = read(&lost).await.unwrap_err().to_string();
    assert!(error.contains("neither on this host nor on the server"), "{error}");
    // A changed one is refused.
    let (server, host) = diverged().await;
    read(&host).await.unwrap_err();
    server.change_newest(|_, ciphertext| *ciphertext.last_mut().unwrap() ^= 1);
    let error = read(&Host::new(&server)).await.unwrap_err().to_string();
    assert!(error.contains("from the server is refused"), "{error}");
}
