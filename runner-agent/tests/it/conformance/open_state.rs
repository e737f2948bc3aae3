//! Tests of the state with which a job begins: several hosts, a server that lost states or does not
//! respond, and interruptions at each step of a write.

use std::{fs, time::Duration};

use runner_agent::{
    plugins::Cancel,
    state::{Decision, KnownState, Reading},
};
use zeroize::Zeroizing;

use super::{
    state_hosts::{Host, Quiet, copy, diverged, mark, state, write},
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
    write(&session, r#"{"version":4,"serial":2,"lineage":"l","resources":[{"type":"y"}]}"#).await;
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

    // Given a full disk, on which the server alone gets serial 5 while 4 is pending.
    server.set_uploads(Uploads::Lose);
    host.apply(40, &[4]).await;
    server.set_uploads(Uploads::Accept);
    let next = host.store().dir().join("state.encrypted.next");
    let session = host.open(50).await.unwrap();
    fs::create_dir(&next).unwrap();
    write(&session, &state(5)).await;
    fs::remove_dir(&next).unwrap();
    let host = Host {
        known: KnownState {
            newest: mark(5),
            digest: session.digest().await,
            ..KnownState::default()
        },
        ..host
    };
    assert_eq!(host.begins_with(60).await, mark(5));
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
    let host = Host { known: KnownState { newest: mark(9), ..KnownState::default() }, ..host };
    assert_eq!(host.begins_with(40).await, mark(3));
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
async fn only_a_rejection_of_the_server_ends_a_write() {
    for (status, code, is_final) in [
        (400, "bad_request", false),
        (408, "body_incomplete", false),
        (403, "forbidden", false),
        (409, "conflict", false),
        (409, "", false),
        (412, "precondition", false),
        (413, "", false),
        (429, "rate_limited", false),
        (503, "busy", false),
        (507, "state_quota_exceeded", false),
        (409, "state_conflict", true),
        (412, "fenced", true),
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
            known: &host.known,
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
    let host = Host { known: KnownState { newest: mark(2), ..KnownState::default() }, ..host };
    let error = read(&host).await.unwrap_err().to_string();
    assert!(error.contains("newest known state is serial 2"), "{error}");
    server.restore(0);
    let lost = Host { known: host.known.clone(), ..Host::new(&server) };
    let error = read(&lost).await.unwrap_err().to_string();
    assert!(error.contains("neither on this host nor on the server"), "{error}");
    // A changed one is refused.
    let (server, host) = diverged().await;
    read(&host).await.unwrap_err();
    server.change_newest(|_, ciphertext| *ciphertext.last_mut().unwrap() ^= 1);
    let error = read(&Host::new(&server)).await.unwrap_err().to_string();
    assert!(error.contains("from the server is refused"), "{error}");
}
